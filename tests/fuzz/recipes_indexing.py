"""Operators that read or write where other data say."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.graph_builder import FLOAT, GraphBuilder, Value

Results = tuple[Value, ...] | None


def _indexed(b: GraphBuilder, low: int = 1) -> Value:
    x = b.take(low, 5, dtype=b.dtype() if b.chance(0.3) else FLOAT)
    return x if 0 not in x.shape else b.feed(b.array((3, 4, 5, 2)[: max(low, 1)]))


def _indices(b: GraphBuilder, shape: tuple[int, ...], extents: np.ndarray | int) -> Value:
    """Return legal indices, negative ones too; a constant or a graph input."""
    draw = np.random.default_rng(b.rng.seed())
    extents = np.broadcast_to(extents, shape)
    indices = draw.integers(0, extents, shape)
    if b.chance(0.4):
        indices = np.where(draw.integers(0, 2, shape), indices - extents, indices)
    indices = indices.astype(np.int32 if b.chance(0.2) else np.int64)
    return b.feed(indices) if b.chance(0.45) else b.constant(indices)


def gather(b: GraphBuilder, op: str) -> Results:
    """Gather of a scalar, a vector or a matrix of indices."""
    x = _indexed(b)
    axis = b.rng.randrange(-x.rank, x.rank)
    shape = b.shape(b.rng.randint(0, 2))
    return b.add(op, x, _indices(b, shape, x.shape[axis]), axis=axis)


def gather_elements(b: GraphBuilder, op: str) -> Results:
    """GatherElements, of fewer elements than the data has or as many."""
    x = _indexed(b)
    axis = b.rng.randrange(x.rank)
    shape = tuple(b.rng.randint(1, n) for n in x.shape) if b.chance(0.5) else x.shape
    return b.add(op, x, _indices(b, shape, x.shape[axis]), axis=axis)


def gather_nd(b: GraphBuilder, op: str) -> Results:
    """GatherND of elements or slices, with batch dimensions at times."""
    x = _indexed(b)
    batch = b.rng.randint(0, x.rank - 1) if b.chance(0.3) and b.opset >= 12 else 0
    depth = b.rng.randint(1, x.rank - batch)
    shape = (*x.shape[:batch], *b.shape(b.rng.randint(0, 1)), depth)
    if math.prod(shape) > 4000:
        return None
    extents = np.array(x.shape[batch : batch + depth])
    given = _indices(b, shape, extents)
    if given.dtype != np.int64:
        return None
    return b.add(op, x, given, batch_dims=batch if batch else None)


def scatter_elements(b: GraphBuilder, op: str) -> Results:
    """ScatterElements whose indices are unique along the axis, or added up."""
    x = _indexed(b)
    axis = b.rng.randrange(x.rank)
    draw = np.random.default_rng(b.rng.seed())
    order = np.argsort(draw.random(x.shape), axis=axis)
    kept = tuple(slice(0, b.rng.randint(1, n)) for n in x.shape)
    indices = order[kept]
    place = b.feed(indices) if b.chance(0.4) else indices
    reduction = b.rng.choice(["none", "none", "add", "mul", "max", "min"])
    updates = b.weight(*indices.shape, dtype=x.dtype)
    return b.add(op, x, place, updates, axis=axis, reduction=reduction)


def scatter_nd(b: GraphBuilder, op: str) -> Results:
    """ScatterND of elements or slices at different places."""
    x = _indexed(b)
    depth = b.rng.randint(1, x.rank)
    places = math.prod(x.shape[:depth])
    draw = np.random.default_rng(b.rng.seed())
    chosen = draw.permutation(places)[: b.rng.randint(1, min(places, 9))]
    indices = np.stack(np.unravel_index(chosen, x.shape[:depth]), axis=-1).astype(np.int64)
    place = b.feed(indices) if b.chance(0.4) else indices
    updates = b.weight(len(chosen), *x.shape[depth:], dtype=x.dtype)
    reduction = b.rng.choice([None, None, "add", "mul", "max", "min"])
    return b.add(op, x, place, updates, reduction=reduction)


def one_hot(b: GraphBuilder, op: str) -> Results:
    """OneHot of a few classes."""
    depth = b.rng.randint(1, 9)
    indices = _indices(b, b.shape(b.rng.randint(1, 2)), depth)
    values = b.array((2,), b.rng.choice([FLOAT, np.dtype(np.int64)]))
    axis = b.rng.randrange(-indices.rank - 1, indices.rank + 1)
    return b.add(op, indices, np.array(depth), values, axis=axis)


def suppression(b: GraphBuilder, op: str) -> Results:
    """Add a NonMaxSuppression; later operators take rows of its result."""
    batch, classes, count = b.rng.randint(1, 2), b.rng.randint(1, 3), b.rng.randint(1, 20)
    corners = np.sort(np.abs(b.array((batch, count, 2, 2))), axis=2).reshape(batch, count, 4)
    draw = np.random.default_rng(b.rng.seed())
    scores = draw.permutation(batch * classes * count).reshape(batch, classes, count)
    limits = [np.array([3]), np.array([0.5], np.float32), np.array([2.0], np.float32)]
    given = [limit if b.chance(0.7) else None for limit in limits]
    return b.add(op, b.feed(corners), b.feed(scores.astype(np.float32)), *given)


def compress(b: GraphBuilder, op: str) -> Results:
    """Compress along an axis by a constant condition."""
    x = _indexed(b)
    axis = b.rng.randrange(x.rank)
    return b.add(op, x, b.array((x.shape[axis],), np.dtype(bool)), axis=axis)


RECIPES = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "Scatter": scatter_elements,
    "ScatterND": scatter_nd,
    "OneHot": one_hot,
    "NonMaxSuppression": suppression,
    "Compress": compress,
}
