"""The study of Liu and Simeone: wireless federated Langevin Monte Carlo with analog transmission,
the predecessor of the quantised scheme.

The package measures its curves of squared W2 distance against SNR, compares them with the published
values, and adds curves of the digital scheme in the same setting."""
