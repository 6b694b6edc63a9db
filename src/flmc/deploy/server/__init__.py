"""The server: it asks, receives, takes Langevin's step, and keeps the record of the run."""
