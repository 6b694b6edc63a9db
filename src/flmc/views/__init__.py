"""What people see: tables on a terminal, figures, pages; drawn from the rows and grids that values
offer.

Nothing here computes a result. One file for each thing shown."""
