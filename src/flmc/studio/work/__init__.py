"""Computations of the studio: cached plans and curves, work that ends with its page, runs in
threads, studies in processes. Nothing here draws."""
