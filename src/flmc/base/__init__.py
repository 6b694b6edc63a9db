"""What every package uses and none owns: array types, errors, checks, random streams, clipping,
tables.

Nothing here knows what a device, a plan or a run is."""
