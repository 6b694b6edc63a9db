"""The federation as processes: device, air and server, their set-up, start and supervision.

Roles decide in plain objects without network and clock (:mod:`flmc.deploy.device`,
:mod:`flmc.deploy.air`, :mod:`flmc.deploy.server`); :mod:`flmc.deploy.loop` connects them. A
round computes what it computes in a simulation (:mod:`flmc.sampling.roles`). Needs the extra
``mqtt``.
"""
