"""The server: it publishes theta, takes the Langevin step, and keeps the record of the run."""
