"""Gather, Scatter and related operators in numpy, for the reference, defined for every index.

ONNX makes an index out of bounds an error. These operators, like compiled code, read the nearest
element instead, or write nothing; `neocpu.schedules.operators.indexing.lookup` gives the reasons.
Concat and Expand are here too: onnx's own visit all elements several times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.pieces import IN_CACHE, in_pieces

_REDUCTIONS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _counted(indices: Array, extents: int | Array) -> Array:
    """Return indices, with negative ones counted from the end."""
    wide = np.asarray(indices).astype(np.int64)
    return np.where(wide < 0, wide + extents, wide)


def _nearest(indices: Array, extents: int | Array) -> Array:
    return np.clip(_counted(indices, extents), 0, np.asarray(extents) - 1)


class Gather(OpRun):  # type: ignore[misc]
    """Slices along one axis."""

    def _run(self, x: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        return (np.asarray(np.take(x, _nearest(indices, x.shape[axis]), axis)),)


class GatherElements(OpRun):  # type: ignore[misc]
    """One element per index."""

    def _run(self, x: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        # Along other axes, indices may cover only the beginning.
        seen = [slice(extent) for extent in indices.shape]
        seen[axis] = slice(None)
        return (np.take_along_axis(x[tuple(seen)], _nearest(indices, x.shape[axis]), axis),)


class GatherND(OpRun):  # type: ignore[misc]
    """Slices selected by several indices each."""

    def _run(self, x: Array, indices: Array, batch_dims: int = 0) -> tuple[Array]:
        depth = indices.shape[-1]
        extents = np.array(x.shape[batch_dims : batch_dims + depth])
        places = _nearest(indices, extents)
        batch = np.indices(indices.shape[:-1])[:batch_dims]
        return (x[(*batch, *np.moveaxis(places, -1, 0))],)


class ScatterElements(OpRun):  # type: ignore[misc]
    """One update per index, in the order of the indices."""

    def _run(
        self, x: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
    ) -> tuple[Array]:
        counted = _counted(indices, x.shape[axis])
        inside = (counted >= 0) & (counted < x.shape[axis])
        places = np.indices(indices.shape)
        places[axis] = counted
        return (_scattered(x, tuple(places[:, inside]), updates[inside], reduction),)


class Scatter(ScatterElements):
    """The name of ScatterElements before opset 11."""


class ScatterND(OpRun):  # type: ignore[misc]
    """One slice per row of indices, which may be `Columns`, in their order."""

    def _run(
        self, x: Array, indices: Array | Columns, updates: Array, reduction: str = "none"
    ) -> tuple[Array]:
        columns = (
            indices.columns if isinstance(indices, Columns) else [*np.moveaxis(indices, -1, 0)]
        )
        extents, rest = x.shape[: len(columns)], x.shape[len(columns) :]
        places, inside = _row_places(columns, extents)
        slices = updates.reshape(len(places), *rest)
        if not inside.all():
            places, slices = places[inside], slices[inside]
        rows = x.reshape(math.prod(extents), *rest)
        return (_scattered(rows, (places,), slices, reduction).reshape(x.shape),)


class MaxUnpool(OpRun):  # type: ignore[misc]
    """Each element at the index where a pooling found it, and zeros elsewhere."""

    def _run(
        self, x: Array, indices: Array, output_shape: Array | None = None, **attrs: Any
    ) -> tuple[Array]:
        kernel = attrs["kernel_shape"]
        rank = len(kernel)
        strides = attrs.get("strides") or [1] * rank
        pads = attrs.get("pads") or [0] * 2 * rank
        extents = [
            (x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
            for i in range(rank)
        ]
        shape = (*x.shape[:2], *extents) if output_shape is None else tuple(output_shape)
        places = _counted(indices.reshape(-1), math.prod(shape))
        inside = (places >= 0) & (places < math.prod(shape))
        flat = np.zeros(math.prod(shape), x.dtype)
        flat[places[inside]] = x.reshape(-1)[inside]
        return (flat.reshape(shape),)


def _row_places(columns: Sequence[Array], extents: Sequence[int]) -> tuple[Array, Array]:
    """Return the flat positions that rows of indices select, and whether each is in bounds."""
    shape = np.broadcast_shapes(*(column.shape for column in columns))
    places, inside = np.zeros((1,) * len(shape), np.int64), np.ones((1,) * len(shape), bool)
    for column, extent in zip(columns, extents, strict=True):
        once = (slice(1) if stride == 0 else slice(None) for stride in column.strides)
        along = column[tuple(once)]
        if along.min(initial=0) < 0:
            along = _counted(along, extent)
        if along.min(initial=0) < 0 or along.max(initial=0) >= extent:
            inside = inside & (along >= 0) & (along < extent)
        places = places * extent + along
    return np.broadcast_to(places, shape).reshape(-1), np.broadcast_to(inside, shape).reshape(-1)


def _scattered(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    operation = _REDUCTIONS.get(reduction)
    if operation is None:
        result[places] = updates  # of several updates to one place, the last one stays
    else:
        operation.at(result, places, updates)
    return result


LARGE: Final = 8 * IN_CACHE  # elements of a tensor from which work in pieces pays


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an array as views, which may repeat elements, to save memory."""

    columns: tuple[Array, ...]

    @classmethod
    def of(cls, tensors: Sequence[Array]) -> Columns:
        """Return the columns of tensors along the last axis, one after the other."""
        return cls(tuple(tensor[..., i] for tensor in tensors for i in range(tensor.shape[-1])))


class Concat(OpRun):  # type: ignore[misc]
    """Concatenation in pieces of rows if tensors are large, as cache lines are written in steps."""

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
