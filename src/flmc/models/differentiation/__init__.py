"""What JAX finds of log densities: local gradients, single examples clipped or not, curvatures, and
the mode. The model that uses it is :mod:`flmc.models.log_density`."""
