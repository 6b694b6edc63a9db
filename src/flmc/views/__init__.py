"""Views of results: tables on a terminal, figures and HTML pages, made from the rows and tables
that results provide. Nothing here computes a result."""
