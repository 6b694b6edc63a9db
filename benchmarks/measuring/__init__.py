"""How the benchmarks measure: processor time of jobs that take turns, each in a process of its own,
with the peak of its memory; and on which machine."""
