"""Published studies, one folder each: constants, readings of the text, claims, figures.

A leaf: nothing imports it but the command that reproduces a paper, and it uses what every user
may."""
