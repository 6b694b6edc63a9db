"""What a federation needs before it starts: certificates, the broker's files, start scripts.

:mod:`~flmc.deploy.setup.directory` writes them all into one directory, with a folder for each
role."""
