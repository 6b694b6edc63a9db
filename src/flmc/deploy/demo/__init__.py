"""A whole federation on one machine: broker, air, server and devices as processes of their own."""
