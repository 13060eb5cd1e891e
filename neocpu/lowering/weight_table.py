"""The weights of a module being rewritten: constants that become the last parameters of ``main``.

Weights outside the code can be page-aligned in the artifact and used in place.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Var

from neocpu.foundation.array_file import ArrayFile
from neocpu.planning.weight_origin import Unpacked

_SAMPLES: Final = 64  # the number of elements that are compared before whole arrays are


class WeightTable:
    """Collects arrays and the variables that stand for them; equal ones are stored once.

    A model with several heads, or one that computes a few rows at a time, reads weights at many
    places. Large arrays are in a temporary file: packed ones may take several times the model's own
    bytes.
    """

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.generic]] = []
        self.params: list[Any] = []
        self.unpacked: list[Unpacked | None] = []
        self._file = ArrayFile()
        self._known: dict[Any, Any] = {}
        self._by_samples: defaultdict[Any, list[int]] = defaultdict(list)

    def add(
        self, array: NDArray[np.generic], key: Any = None, origin: Unpacked | None = None
    ) -> Any:
        """Return the variable for ``array``, or for the first array that has this ``key``."""
        if key is not None and key in self._known:
            return self._known[key]
        var = self._variable(np.ascontiguousarray(array), origin)
        if key is not None:
            self._known[key] = var
        return var

    def _variable(self, array: NDArray[np.generic], origin: Unpacked | None) -> Any:
        elements = array.reshape(-1)
        samples = elements[:: max(1, elements.size // _SAMPLES)]
        candidates = self._by_samples[array.shape, array.dtype, samples.tobytes()]
        for number in candidates:
            if np.array_equal(_bytes(self.arrays[number]), _bytes(array)):
                return self.params[number]
        candidates.append(len(self.arrays))
        ty = relax.TensorType(array.shape, str(array.dtype))
        var = Var(f"weight_{len(self.arrays)}", ty)
        self.arrays.append(self._file.keep(array))
        self.params.append(var)
        self.unpacked.append(origin)
        return var


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
