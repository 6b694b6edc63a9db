"""Views of results: tables on a terminal, figures and HTML pages, drawn from the rows and tables
that results offer. Nothing here computes a result."""
