"""A federation as processes on separate machines: devices, server, and the air, a process that
stands for the radio channel; with their set-up, start and supervision.

Each role is a plain object without a network (:mod:`flmc.deploy.device`, :mod:`flmc.deploy.air`,
:mod:`flmc.deploy.server`); :mod:`flmc.deploy.loop` gives it messages and the time, and publishes
its replies. A round computes the same as in a simulation (:mod:`flmc.sampling.roles`). The package
needs flmc's extra ``mqtt`` (``pip install 'flmc[mqtt]'``).
"""
