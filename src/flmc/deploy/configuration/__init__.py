"""Configurations of roles: TOML files in which names of files are relative to the file itself."""
