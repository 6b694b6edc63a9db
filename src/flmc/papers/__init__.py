"""Published studies, one folder each: constants, readings of the text, claims, figures.

A reading is one way to take a paper's text where it is ambiguous. The package is a leaf: only the
command `flmc reproduce` imports it, and it uses nothing that users may not use."""
