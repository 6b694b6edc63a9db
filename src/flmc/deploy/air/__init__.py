"""The air between devices and server: it adds up what devices send, and noise.

It stands for the physics of a radio channel. It is trusted, and must not collude with the
server."""
