"""What the devices know: gradients of their local costs, and what is known of the posterior.

The data themselves live in :mod:`flmc.data`."""
