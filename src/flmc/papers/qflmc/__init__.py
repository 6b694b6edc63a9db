"""The study of Zhang, Liu and Simeone: "Leveraging Channel Noise for Sampling and Privacy via
Quantized Federated Langevin Monte Carlo".

Its figures, the claims made of them one by one, and what a better design gains."""
