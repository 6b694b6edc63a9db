"""From a gradient to the server's estimate: clipping, links, schemes, fading, scheduling, channel
and power.

The contracts to implement are :class:`~flmc.uplink.uplink.Uplink`, :class:`~flmc.uplink.link.Link`,
:class:`~flmc.uplink.fading.Fading` and :class:`~flmc.uplink.scheduler.Scheduler`; flmc brings its
own in ``schemes``, ``links``, ``fadings`` and ``schedulers``. What a power limit allows is computed
in ``power``, the effect of inexact channel estimates in ``csi``, and the channels that a plan
counts on in ``planned_channels``.

An uplink also states the privacy event that its transmissions imply; what an event costs is said in
:mod:`flmc.privacy`, and how strongly to transmit in :mod:`flmc.planning`."""
