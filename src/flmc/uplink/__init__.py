"""From a gradient to the server's estimate: clipping, links, schemes, fading, scheduling, channel
and power.

An uplink also states the privacy event that its transmissions imply; what an event costs is said in
:mod:`flmc.privacy`, and how strongly to transmit in :mod:`flmc.planning`."""
