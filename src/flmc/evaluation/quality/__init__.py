"""How close draws are to the exact posterior: all chains together, and one chain by itself."""
