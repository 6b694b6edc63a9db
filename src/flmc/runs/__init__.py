"""Runs and what they leave on disk: records, ledgers, resuming, comparisons and sweeps.

The only package below the front ends that writes files and takes locks."""
