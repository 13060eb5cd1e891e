"""What products of activations compute, and where in memory: frozen, and printed in full."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.strided_view import StridedView


@dataclass(frozen=True, slots=True)
class ProductWorkload:
    """``output[b, i, j] = scale * sum over k of left[b, i, k] * right[b, k, j]``.

    Attributes
    ----------
    batch : tuple of int
        Extents of the axes before the matrices'.
    rows, columns, depth : int
        Extents of i, j and k.
    left, right, output : StridedView
        Of the batch's axes and two more, which are regular.
    """

    numerics: ClassVar[Numerics] = FLOAT32
    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    scale: float
    left: StridedView
    right: StridedView
    output: StridedView

    @property
    def flops(self) -> int:
        """Floating-point operations, two per multiply-accumulate."""
        return 2 * math.prod(self.batch) * self.rows * self.columns * self.depth

    def __str__(self) -> str:
        return f"{math.prod(self.batch)} of {self.rows}x{self.depth} -> {self.columns}"

    def transposed(self) -> ProductWorkload:
        """Return the product of the transposed matrices in the other order, which is the same."""
        order = (*range(len(self.batch)), len(self.batch) + 1, len(self.batch))
        return ProductWorkload(
            self.batch,
            self.columns,
            self.rows,
            self.depth,
            self.scale,
            self.right.permuted(order),
            self.left.permuted(order),
            self.output.permuted(order),
        )


@dataclass(frozen=True, slots=True)
class AttentionWorkload:
    """``output = softmax(scale * q kᵀ + biases) v``, for each index of the batch.

    Heads may talk to each other (Shazeer et al., 2020): before the softmax, after it or both their
    scores become sums of those of all heads, the last axis of the batch.

    Attributes
    ----------
    batch : tuple of int
        Extents of the axes before the matrices': images or windows, and heads.
    queries, keys, depth, width : int
        Rows of q and the output, rows of k and v, columns of q and k, columns of v and the output.
    scale : float
        Above zero.
    q, k, v, output, biases : StridedView
        Of the batch's axes and two more, which are regular: rows and columns; of a bias, queries
        and keys, and neighbouring keys lie side by side or are one.
    zeros : bool
        Whether a query whose softmax is no numbers, as where all keys are masked, gives zeros.
    mixed_before, mixed_after : bool
        Whether heads are mixed before the softmax, and after it.
    products : Numerics
        `FLOAT32`, or `BFLOAT16_PRODUCTS`. All else is float32.
    """

    numerics: ClassVar[Numerics] = FLOAT32
    batch: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    scale: float
    q: StridedView
    k: StridedView
    v: StridedView
    output: StridedView
    biases: tuple[StridedView, ...] = ()
    zeros: bool = False
    mixed_before: bool = False
    mixed_after: bool = False
    products: Numerics = FLOAT32

    @property
    def panel_bytes(self) -> int:
        """Bytes of a head's keys and values as they are multiplied."""
        return bytes_of(self.products.weights) * self.keys * (self.depth + self.width)

    @property
    def mixes(self) -> int:
        """How often heads are mixed."""
        return self.mixed_before + self.mixed_after

    @property
    def flops(self) -> int:
        """Floating-point operations of all products, two per multiply-accumulate."""
        pairs = math.prod(self.batch) * self.queries * self.keys
        mixed = self.mixes * self.batch[-1] if self.mixes else 0
        return 2 * pairs * (self.depth + self.width + mixed)

    def __str__(self) -> str:
        size = f"{math.prod(self.batch)} of {self.queries}x{self.keys}, {self.depth}"
        size += f" -> {self.width}" if self.width != self.depth else ""
        size += ", heads mixed" if self.mixes else ""
        return size if self.products == FLOAT32 else f"{size}, {self.products}"
