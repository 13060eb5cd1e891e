"""What kernels that no pass looks into say of the rows of a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from tvm import tirx

ATTRIBUTE: Final = "neocpu.apart"
"""Of a kernel: a `KernelRows`."""

Way: TypeAlias = "tuple[Sequence[int | None], Sequence[int]]"
"""Axes of what a kernel reads and of what it writes: with each of their indices it does alike."""

Packed: TypeAlias = "tuple[int, Sequence[int], Sequence[int]]"
"""The number of a tensor, a shape to see it in, and the order of its axes in which it is the same
for any number of rows."""


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Axes along which a kernel takes one index after the other, none of which matters to others.

    Attributes
    ----------
    computes : str
        What it computes with one of them, as far as shapes do not tell.
    ways : sequence of Way
        Of a tensor that has no such axis None.
    indexed : sequence of int, optional
        Of a kernel that makes offsets of rows of indices: the extents that these point into.
    selects : sequence of int, optional
        Of a NonMaxSuppression, which makes rows of image, class and box: how many classes there
        are, and boxes of an image.
    packed : sequence of Packed, optional
        The constants that it reads in an order which is up to how many rows there are.
    """

    computes: str
    ways: Sequence[Way]
    indexed: Sequence[int] | None = None
    selects: Sequence[int] | None = None
    packed: Sequence[Packed] = ()

    def marked(self, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return a kernel that says so."""
        return kernel.with_attr(ATTRIBUTE, json.dumps(asdict(self)))

    @classmethod
    def of(cls, kernel: tirx.PrimFunc) -> KernelRows | None:
        """Return what a kernel says; None if it says nothing."""
        text = kernel.attrs.get(ATTRIBUTE) if kernel.attrs else None
        return None if text is None else cls(**json.loads(str(text)))
