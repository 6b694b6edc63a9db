"""What the suite measures: each part returns rows, one for every line of a table."""
