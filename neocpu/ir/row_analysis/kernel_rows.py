"""The independent axes that kernels report, because no pass looks into kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from tvm import tirx

ATTRIBUTE: Final = "neocpu.apart"  # the attribute of a kernel that holds its `KernelRows`

Way: TypeAlias = "tuple[Sequence[int | None], Sequence[int]]"
"""The axis of each input, None for one that all indices share, and the axis of each result."""

Packed: TypeAlias = "tuple[int, Sequence[int], Sequence[int]]"
"""The position of an input, a shape to view it in, and the order of its axes in which its elements
are the same for any number of rows."""


@dataclass(frozen=True, slots=True)
class KernelRows:
    """The axes along which a kernel computes each index independently of the others."""

    computes: str  # the computation for one index, as far as it does not follow from shapes
    ways: Sequence[Way]  # axes that run alongside each other, alternatives
    # The extents that indices point into, if the kernel turns rows of indices into offsets.
    indexed: Sequence[int] | None = None
    # Classes and boxes of an image, if it is a NonMaxSuppression: rows are image, class and box.
    selects: Sequence[int] | None = None
    packed: Sequence[Packed] = ()  # the constants whose order depends on the number of rows

    def marked(self, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        return kernel.with_attr(ATTRIBUTE, json.dumps(asdict(self)))

    @classmethod
    def of(cls, kernel: tirx.PrimFunc) -> KernelRows | None:
        text = kernel.attrs.get(ATTRIBUTE) if kernel.attrs else None
        return None if text is None else cls(**json.loads(str(text)))
