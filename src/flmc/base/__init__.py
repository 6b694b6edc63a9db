"""What every package uses and none owns: array types, errors, checks, random streams, special
functions, clipping, documents, text tables and progress.

Nothing in this package knows what a device, a plan or a run is."""
