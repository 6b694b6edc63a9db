"""Views of results: tables on a terminal, figures, pages, drawn from the rows and grids that values
offer. Nothing here computes a result."""
