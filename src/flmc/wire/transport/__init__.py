"""How messages travel: one small interface, MQTT behind it, and a hub in memory.

Another transport is another file: a class with ``connect``."""
