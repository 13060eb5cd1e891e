"""The weights that packed weights were made of, and their layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.ir.array_digests import ArrayDigests
from neocpu.schedules.convolutions.weight_kernels import PackedWeights
from neocpu.schedules.vocabulary.layout import KernelLayout, WeightLayout


@dataclass(frozen=True, slots=True, eq=False)
class WeightOrigin:
    """A description of weights before packing that outlives the rest of the model."""

    digest: bytes  # digest of the weights, which identifies them
    oihw: tuple[int, int, int, int]  # shape of the weights in the model
    layout: WeightLayout  # layout in which they were packed
    transformed: NDArray[Any] | None  # if the packed ones cannot restore them

    def packed(self, dtype: str, shape: tuple[int, ...]) -> PackedWeights:
        return PackedWeights(self.oihw, dtype, self.layout, shape)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """Weights as the model has them, and the layout they are packed in."""

    oihw: NDArray[Any]  # weights, which may be a view of another array
    layout: WeightLayout

    @classmethod
    def known(cls, oihw: NDArray[Any], layout: WeightLayout | None) -> Unpacked | None:
        """Return weights in a layout that others can pack, too; None if there is no such layout."""
        return None if layout is None else cls(oihw, layout)

    def origin(self, digests: ArrayDigests) -> WeightOrigin:
        weights, layout = self.oihw, self.layout
        outs, ins, down, across = weights.shape
        kept = None if isinstance(layout, KernelLayout) else weights
        return WeightOrigin(digests.of(weights), (outs, ins, down, across), layout, kept)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Packing:
    """An array that is packed where it is needed.

    - `source`: what it is packed from; ``make`` packs equal ones alike.
    """

    source: NDArray[np.generic]
    make: Callable[[], NDArray[np.generic]]
