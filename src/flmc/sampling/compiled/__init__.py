"""The numba engine: quadratic models in compiled code, many chains in each vector instruction.

Imported only when it is chosen, because importing numba takes half a second."""
