"""The numba engine: runs models with quadratic costs as machine code, as a rule with eight chains
in each vector instruction.

This package is imported only when the engine is needed. docs/compiled_engine.md explains it."""
