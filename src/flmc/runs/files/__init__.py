"""Reading and writing of the files of records and sweeps: regular files only, each written whole or
not at all, with digests, and locks of directories.

These modules do not know what the files contain."""
