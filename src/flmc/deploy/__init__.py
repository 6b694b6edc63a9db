"""The federation as processes: device, air and server; how they are set up, started and
watched."""
