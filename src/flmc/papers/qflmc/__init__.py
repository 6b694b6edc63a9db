"""The study of Zhang, Liu and Simeone: "Leveraging Channel Noise for Sampling and Privacy via
Quantized Federated Langevin Monte Carlo".

Here are its figures, verdicts on its claims one by one, and the gain of better designs."""
