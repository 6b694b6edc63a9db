"""The round as JAX compiles it: random numbers by counters, symbols, a loop over rounds, and the
engine that calls it. JAX is imported when the engine is used, not before."""
