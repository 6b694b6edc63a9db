"""The ledger of a run: which gains were transmitted, and what they cost."""
