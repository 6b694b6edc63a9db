"""Settings of plans and runs: one schema for TOML files, command-line options and JSON, the
registry of names such as links and fadings, and the way from settings to objects."""
