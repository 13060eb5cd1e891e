"""The weights of cubic interpolation; without onnx's operators, which take long to import."""

from __future__ import annotations

import numpy as np

from neocpu.foundation.arrays import Array


def cubic_kernel(d: Array, a: float) -> Array:
    """Return the weight of a neighbour at a distance, by Keys' cubic convolution."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
