"""Numbers: clipping, and functions that NumPy and SciPy do not have or do not have precisely."""
