"""Machine code that is written out operation by operation: what happens inside a round."""
