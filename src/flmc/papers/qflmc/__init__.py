"""The study of Zhang, Liu and Simeone: "Leveraging Channel Noise for Sampling and Privacy via
Quantized Federated Langevin Monte Carlo".

The package reproduces its figures, judges its claims one by one, and compares its schemes with
better ones."""
