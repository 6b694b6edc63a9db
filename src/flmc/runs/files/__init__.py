"""Files of records and sweeps: regular files only, whole or not at all, with digests and locks.

These modules do not know what the files contain."""
