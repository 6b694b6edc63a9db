"""The federation as processes: device, air, server; how they are set up, started and watched.

Roles decide in plain objects that know no network (:mod:`flmc.deploy.device`,
:mod:`flmc.deploy.air`, :mod:`flmc.deploy.server`); :mod:`flmc.deploy.running` connects them. What a
round computes is :mod:`flmc.sampling.roles`, as in a simulation. The extra ``mqtt`` is needed."""
