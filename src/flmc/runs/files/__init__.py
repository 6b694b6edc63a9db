"""Files of records and sweeps: regular files only, whole or not at all, with digests and locks.

What is in them is not known here."""
