"""Messages between the roles of a federation: topics, payloads, status, and the transport.

A federation has a server, devices, and between them the air, which stands for the radio channel.
This package holds their messages as bytes; :mod:`flmc.deploy` holds the roles themselves. The
formats are specified in docs/deployment.md."""
