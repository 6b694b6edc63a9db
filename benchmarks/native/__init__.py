"""Programs in C for the benchmarks, built where a compiler is there."""
