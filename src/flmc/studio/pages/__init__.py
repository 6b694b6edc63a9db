"""Pages of the studio, one file each: what is on it, and what happens when something is moved."""
