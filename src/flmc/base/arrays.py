"""Names for the array types that every signature uses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""Real numbers in double precision; the shape is stated where an array is passed."""
ComplexArray = npt.NDArray[np.complex128]
"""Complex numbers in double precision."""
IntArray = npt.NDArray[np.int64]
"""Whole numbers of 64 bits, for what must be added without rounding."""
