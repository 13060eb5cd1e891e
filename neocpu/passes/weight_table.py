"""The weights of a module being rewritten: constants that become trailing parameters of ``main``.

Weights outside the code can lie page-aligned in the artifact and be used in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Var


class WeightTable:
    """Collects arrays and the variables that stand for them; equal objects are stored once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.generic]] = []
        self.params: list[Any] = []
        self._known: dict[Any, Any] = {}

    def add(self, array: NDArray[np.generic], key: Any = None) -> Any:
        """Return the variable for ``array``; with ``key``, for the array first added under it."""
        if key is not None and key in self._known:
            return self._known[key]
        array = np.ascontiguousarray(array)
        ty = relax.TensorType(array.shape, str(array.dtype))
        var = Var(f"weight_{len(self.arrays)}", ty)
        self.arrays.append(array)
        self.params.append(var)
        if key is not None:
            self._known[key] = var
        return var
