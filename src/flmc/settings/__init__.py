"""One schema for files, options and JSON, the registry of names, and the way from settings to
objects."""
