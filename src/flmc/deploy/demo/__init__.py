"""A whole federation on one machine: broker, air, server and devices as separate processes."""
