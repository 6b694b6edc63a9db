"""From settings to the things that they name: models on synthetic data or on files."""
