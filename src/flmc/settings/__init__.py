"""Settings of plans and runs: one schema for TOML files, command-line options and JSON, the
registries of names such as those of links and fadings, and functions that make models, uplinks and
plans from settings."""
