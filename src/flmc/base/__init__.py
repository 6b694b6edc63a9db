"""Tools of all other packages: array types, errors, checks, random streams, special functions,
clipping, documents, text tables, findings and progress.

No module here imports another package of flmc."""
