"""Commands of a federation: its roles, how it is set up, how it stands, and a demonstration."""
