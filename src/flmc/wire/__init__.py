"""What travels between the roles of a federation: topics, payloads, status, and the transport.

A federation has a server, devices, and the air between them. Here is what they say to each other,
in bytes; what they do lives in :mod:`flmc.deploy`. The formats are specified in
docs/deployment.md."""
