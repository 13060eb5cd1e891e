"""The independent axes that kernels report which no pass looks into."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from tvm import tirx

ATTRIBUTE: Final = "neocpu.apart"
"""The attribute of a kernel that holds its `KernelRows`."""

Way: TypeAlias = "tuple[Sequence[int | None], Sequence[int]]"
"""The axis of each input, None for one that all indices share, and the axis of each result."""

Packed: TypeAlias = "tuple[int, Sequence[int], Sequence[int]]"
"""The position of an input, a shape to view it in, and the order of its axes in which its elements
are the same for any number of rows."""


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Axes along which a kernel computes index by index, none of which matters to another.

    Attributes
    ----------
    computes : str
        The computation for one index, as far as shapes do not say it.
    ways : sequence of Way
        The axes that run alongside each other, one alternative after the other.
    indexed : sequence of int, optional
        The extents that indices point into, if the kernel makes offsets of rows of indices.
    selects : sequence of int, optional
        The numbers of classes and of boxes of an image, if the kernel is a NonMaxSuppression, which
        makes rows of image, class and box.
    packed : sequence of Packed, optional
        The constants whose order depends on the number of rows.
    """

    computes: str
    ways: Sequence[Way]
    indexed: Sequence[int] | None = None
    selects: Sequence[int] | None = None
    packed: Sequence[Packed] = ()

    def marked(self, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return the kernel with the attribute that reports this."""
        return kernel.with_attr(ATTRIBUTE, json.dumps(asdict(self)))

    @classmethod
    def of(cls, kernel: tirx.PrimFunc) -> KernelRows | None:
        """Return what a kernel reports, or None if it reports nothing."""
        text = kernel.attrs.get(ATTRIBUTE) if kernel.attrs else None
        return None if text is None else cls(**json.loads(str(text)))
