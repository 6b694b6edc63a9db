"""The air between devices and server: it adds the devices' symbols and noise.

It stands for the physics of a radio channel. Devices trust it with their symbols, and it must
not collude with the server.
"""
