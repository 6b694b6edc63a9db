"""What happens inside a call of the fast engine, written out instruction by instruction."""
