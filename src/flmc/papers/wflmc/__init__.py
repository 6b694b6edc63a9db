"""The study of Liu and Simeone: wireless federated Langevin Monte Carlo with analog transmission,
the predecessor of the quantised scheme.

It has curves of squared W2 against SNR, with the published numbers, and the digital scheme in the
same setting."""
