"""Set-up of a federation: certificates, broker configuration, start scripts, systemd units.

:mod:`~flmc.deploy.setup.directory` writes all of them into one directory, with a folder for each
role (broker, server, air, devices, observers).
"""
