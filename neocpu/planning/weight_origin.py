"""What packed weights were made of, and how."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.convolutions.weight_kernels import PackedWeights
from neocpu.schedules.vocabulary.layout import KernelLayout, WeightLayout


@dataclass(frozen=True, slots=True, eq=False)
class WeightOrigin:
    """What packed weights were made of, after the rest of the model is let go.

    Attributes
    ----------
    digest : bytes
        Tells the weights from all others.
    oihw : tuple of int
        Their shape as the model has them.
    layout : KernelLayout or WinogradLayout
        That they were packed in.
    transformed : array or None
        The weights as the model has them, where none could tell by the packed ones.
    """

    digest: bytes
    oihw: tuple[int, int, int, int]
    layout: WeightLayout
    transformed: NDArray[Any] | None

    def packed(self, dtype: str, shape: tuple[int, ...]) -> PackedWeights:
        """Return what they are packed as, in a tensor of an element type and a shape."""
        return PackedWeights(self.oihw, dtype, self.layout, shape)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """Weights as the model has them, and the layout they are packed in.

    Attributes
    ----------
    oihw : array
        Perhaps a view of others.
    """

    oihw: NDArray[Any]
    layout: WeightLayout

    @classmethod
    def known(cls, oihw: NDArray[Any], layout: WeightLayout | None) -> Unpacked | None:
        """Return what there is to say of weights; nothing if nobody else packs them so."""
        return None if layout is None else cls(oihw, layout)

    @property
    def origin(self) -> WeightOrigin:
        """What is to be kept."""
        weights, layout = self.oihw, self.layout
        outs, ins, down, across = weights.shape
        turned = not weights.flags.c_contiguous  # as matrices are
        elements = np.ascontiguousarray(weights.T if turned else weights).reshape(-1)
        whole = hashlib.blake2b(elements.view(np.uint8).data)
        whole.update(repr((weights.shape, weights.dtype.name, turned)).encode())
        kept = None if isinstance(layout, KernelLayout) else weights
        return WeightOrigin(whole.digest(), (outs, ins, down, across), layout, kept)
