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
from neocpu.foundation.errors import UnsupportedError
from neocpu.planning.weight_origin import Packing, Unpacked

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
        # What was added, in order, and the number of the array that stands for it.
        self._number = 0  # that of the array that was added last
        self._added: list[tuple[NDArray[np.generic], int]] = []

    def add(
        self,
        array: NDArray[np.generic] | Packing,
        key: Any = None,
        origin: Unpacked | None = None,
    ) -> Any:
        """Return the variable for ``array``, or for the first array that has this ``key``."""
        if key is not None and key in self._known:
            return self._known[key]
        var = self._add(array, origin)
        if key is not None:
            self._known[key] = var
        return var

    def again(self) -> SameWeights:
        """Return a table to which equal arrays are added, in the same order."""
        return SameWeights(self)

    def _add(self, array: NDArray[np.generic] | Packing, origin: Unpacked | None) -> Any:
        source, packed = (
            (array.source, array.make()) if isinstance(array, Packing) else (array, array)
        )
        var = self._variable(np.ascontiguousarray(packed), origin)
        self._added.append((source, self._number))
        return var

    def _variable(self, array: NDArray[np.generic], origin: Unpacked | None) -> Any:
        elements = array.reshape(-1)
        samples = elements[:: max(1, elements.size // _SAMPLES)]
        candidates = self._by_samples[array.shape, array.dtype, samples.tobytes()]
        for number in candidates:
            if np.array_equal(_bytes(self.arrays[number]), _bytes(array)):
                self._number = number
                return self.params[number]
        self._number = len(self.arrays)
        candidates.append(len(self.arrays))
        ty = relax.TensorType(array.shape, str(array.dtype))
        var = Var(f"weight_{len(self.arrays)}", ty)
        self.arrays.append(self._file.keep(array))
        self.params.append(var)
        self.unpacked.append(origin)
        return var


class SameWeights(WeightTable):
    """A table with the arrays of another one, to which the same must be added again.

    Nothing is packed again: only what packed weights are made of is compared.
    """

    def __init__(self, first: WeightTable) -> None:
        super().__init__()
        self.arrays, self.unpacked = first.arrays, first.unpacked
        self.params = [Var(str(param.name), param.ty) for param in first.params]
        self._first = first

    def _add(self, array: NDArray[np.generic] | Packing, origin: Unpacked | None) -> Any:
        source = array.source if isinstance(array, Packing) else array
        number = len(self._added)
        known = self._first._added[number] if number < len(self._first._added) else None
        if known is None or not _equal(known[0], source):
            raise UnsupportedError("a constant of the network depends on its size")
        self._added.append(known)
        return self.params[known[1]]


def _equal(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    mine, its = (_bytes(np.ascontiguousarray(each)) for each in (one, other))
    return np.array_equal(mine, its)


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
