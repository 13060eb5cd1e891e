"""What packed weights were made of, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from neocpu.ir.array_digests import ArrayDigests
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
    layout : KernelLayout, WinogradLayout or StrassenLayout
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

    def origin(self, digests: ArrayDigests) -> WeightOrigin:
        """Return what is to be kept."""
        weights, layout = self.oihw, self.layout
        outs, ins, down, across = weights.shape
        kept = None if isinstance(layout, KernelLayout) else weights
        return WeightOrigin(digests.of(weights), (outs, ins, down, across), layout, kept)
