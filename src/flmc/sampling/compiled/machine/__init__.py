"""A small language of machine instructions, and random numbers in it."""
