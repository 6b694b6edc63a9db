"""The numba engine: quadratic models in machine code, eight chains in each vector instruction.

Imported only when it is chosen. docs/compiled_engine.md explains it from the beginning."""
