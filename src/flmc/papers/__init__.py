"""Published studies, one folder each: constants, readings of the text, claims, figures.

A leaf: nothing imports this package but the command that reproduces a paper, and it uses nothing
that users may not use."""
