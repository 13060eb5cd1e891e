"""Workloads of products of activations, with the places of their tensors in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.strided_view import StridedView


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductWorkload:
    """``output[b, i, j] = scale * sum over k of left[b, i, k] * right[b, k, j]``.

    - `batch`: the extents of the axes before those of the matrices.
    - `rows`, `columns`, `depth`: the extents of i, j and k.
    - `left`, `right`, `output`: views with the batch's axes and two more, which are regular.
    - `products`, `splits`: as in `AttentionWorkload`.
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
    products: Numerics = FLOAT32
    splits: bool = False

    @property
    def panel_bytes(self) -> int:
        """The bytes of a packed right factor."""
        return bytes_of(self.products.weights) * self.depth * self.columns

    @property
    def flops(self) -> int:
        """The number of floating-point operations, two per multiply-accumulate."""
        return 2 * math.prod(self.batch) * self.rows * self.columns * self.depth

    def __str__(self) -> str:
        size = f"{math.prod(self.batch)} of {self.rows}x{self.depth} -> {self.columns}"
        return size + _multiplied(self.products, self.splits)

    def transposed(self) -> ProductWorkload:
        """Return the equivalent product of the transposed matrices in the opposite order."""
        order = (*range(len(self.batch)), len(self.batch) + 1, len(self.batch))
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            left=self.right.permuted(order),
            right=self.left.permuted(order),
            output=self.output.permuted(order),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWorkload:
    """``output = softmax(scale * q kᵀ + biases) v``, for each index of the batch.

    Heads may be mixed (Shazeer et al., 2020): before the softmax, after it, or both, scores become
    weighted sums over all heads, the last axis of the batch.

    - `batch`: the extents of the axes before those of the matrices: images or windows, and heads.
    - `queries`, `keys`, `depth`, `width`: the rows of q and the output, the rows of k and v, the
      columns of q and k, and the columns of v and the output.
    - `scale`: a positive factor.
    - `q`, `k`, `v`, `output`, `biases`: views with the batch's axes and two more, which are
      regular: rows and columns. Those of a bias are queries and keys; neighbouring keys lie side by
      side or are the same element.
    - `zeros`: whether a query whose softmax is NaN, because all keys are masked, gives zeros.
    - `mixed_before`, `mixed_after`: whether heads are mixed before the softmax, and after it.
    - `products`: `FLOAT32`, or `BFLOAT16_PRODUCTS`. Everything else is float32.
    - `splits`: whether factors of float32 are multiplied as sums of two bfloat16 values.
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
    splits: bool = False

    @property
    def panel_bytes(self) -> int:
        """The bytes of a head's packed keys and values."""
        return bytes_of(self.products.weights) * self.keys * (self.depth + self.width)

    @property
    def mixes(self) -> int:
        """The number of times that heads are mixed."""
        return self.mixed_before + self.mixed_after

    @property
    def flops(self) -> int:
        """The number of floating-point operations of all products, two per multiply-accumulate."""
        pairs = math.prod(self.batch) * self.queries * self.keys
        mixed = self.mixes * self.batch[-1] if self.mixes else 0
        return 2 * pairs * (self.depth + self.width + mixed)

    def __str__(self) -> str:
        size = f"{math.prod(self.batch)} of {self.queries}x{self.keys}, {self.depth}"
        size += f" -> {self.width}" if self.width != self.depth else ""
        size += ", heads mixed" if self.mixes else ""
        return size + _multiplied(self.products, self.splits)


def _multiplied(products: Numerics, splits: bool) -> str:
    """Return how values are multiplied, after a comma, if not as float32."""
    if splits:
        return ", in parts of bfloat16"
    return "" if products == FLOAT32 else f", {products}"
