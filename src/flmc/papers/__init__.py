"""Reproductions of published studies, one folder for each: constants, readings of the text, claims,
figures.

A reading is one interpretation of a paper's text where it is ambiguous. Only the command `flmc
reproduce` imports this package, and the package uses only what users may use, too."""
