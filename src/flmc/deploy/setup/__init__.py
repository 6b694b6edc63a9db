"""Set-up of a federation: certificates, broker configuration, start scripts, systemd units.

:mod:`~flmc.deploy.setup.directory` writes them into one directory with a folder for each role.
"""
