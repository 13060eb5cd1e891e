"""Operators that only move elements; onnx's own visit all of them several times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.pieces import IN_CACHE, in_pieces

LARGE: Final = 8 * IN_CACHE
"""Elements of a tensor from which work in pieces pays."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an array, as separate views, which may repeat elements.

    Indices that write a tensor into another are several times as large as the tensor.
    """

    columns: tuple[Array, ...]

    @classmethod
    def of(cls, tensors: Sequence[Array]) -> Columns:
        """Return the columns of tensors along the last axis, one after the other."""
        return cls(tuple(tensor[..., i] for tensor in tensors for i in range(tensor.shape[-1])))


class Concat(OpRun):  # type: ignore[misc]
    """Concatenation of tensors, in pieces of rows if they are large.

    Concatenating coordinates writes each cache line in several steps.
    """

    def _run(self, *tensors: Array, axis: int = 0) -> tuple[Array]:
        first = tensors[0]
        before = first.shape[: axis % first.ndim]
        if sum(tensor.size for tensor in tensors) < LARGE or max(before, default=1) == 1:
            return (np.concatenate(tensors, axis),)
        shape = list(first.shape)
        shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
        result = np.empty(shape, first.dtype)
        along = before.index(max(before))

        def move(part: slice) -> None:
            rows = (*(slice(None),) * along, part)
            np.concatenate([tensor[rows] for tensor in tensors], axis, out=result[rows])

        in_pieces(shape[along], result.size // shape[along], move)
        return (result,)


class Expand(OpRun):  # type: ignore[misc]
    """A view that repeats elements; onnx multiplies with a tensor of ones."""

    def _run(self, x: Array, shape: Array) -> tuple[Array]:
        return (np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist()))),)
