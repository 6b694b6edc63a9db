"""The study of Liu and Simeone: wireless federated Langevin Monte Carlo with analog transmission,
the predecessor that the quantised scheme is compared with.

Its curves of squared W2 against SNR, the published numbers beside them, and the digital scheme in
the same setting."""
