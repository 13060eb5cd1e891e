"""Operators that move, cut, join or repeat data."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.graph_builder import DTYPES, FLOAT, INT64, GraphBuilder, Value, element_type

Results = tuple[Value, ...] | None


def _any(b: GraphBuilder, low: int = 0, high: int = 6) -> Value:
    """Return a value of any type, float32 mostly."""
    return b.take(low, high, dtype=b.dtype(), fresh=0.05)


def factors(b: GraphBuilder, elements: int) -> list[int]:
    """Return extents whose product is ``elements``."""
    dims, rest = [], elements
    for _ in range(b.rng.randint(0, 4)):
        dims.append(b.rng.choice([d for d in range(1, min(rest, 64) + 1) if rest % d == 0] or [0]))
        rest //= max(dims[-1], 1)
    dims.insert(b.rng.randint(0, len(dims)), rest)
    return dims


def reshape(b: GraphBuilder, op: str) -> Results:
    """Reshape, with -1 or 0 at times; or to a shape computed from the data's."""
    x = _any(b)
    wanted = factors(b, math.prod(x.shape))
    if x.rank > 1 and b.chance(0.3):
        return _view(b, x)
    if b.chance(0.4):
        wanted[b.rng.randrange(len(wanted))] = -1
    if b.chance(0.15) and x.rank and len(wanted) and x.shape[0] == wanted[0]:
        wanted[0] = 0
    return b.add(op, x, np.array(wanted, np.int64))


def _view(b: GraphBuilder, x: Value) -> Results:
    """Add PyTorch's export of ``x.view(x.shape[0], -1)``; the sizes are known by now."""
    if (shape := b.add("Shape", x)) is None:
        return None
    if (first := b.add("Gather", shape[0], np.array([0]), axis=0)) is None:
        return None
    if (wanted := b.add("Concat", first[0], np.array([-1]), axis=0)) is None:
        return None
    known = np.array([x.shape[0], -1], np.int64)
    stated = Value(wanted[0].name, INT64, (2,), known)
    return b.add("Reshape", x, stated)


def transpose(b: GraphBuilder, op: str) -> Results:
    """Transpose by any permutation, or the default one."""
    x = _any(b, 1)
    order = list(range(x.rank))
    b.rng.shuffle(order)
    return b.add(op, x, perm=order if b.chance(0.85) else None)


def flatten(b: GraphBuilder, op: str) -> Results:
    """Flatten at any axis."""
    x = _any(b)
    return b.add(op, x, axis=b.rng.randint(0, x.rank) if b.chance(0.6) else None)


def squeeze(b: GraphBuilder, op: str) -> Results:
    """Squeeze all or some of the axes of one element."""
    x = b.choose(lambda v: 1 in v.shape) or b.feed(b.array((2, 1, 3, 1)))
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    chosen = [axis for axis in ones if b.chance(0.5)] or ones[:1]
    return b.add(op, x, axes=chosen if b.chance(0.8) else None)


def unsqueeze(b: GraphBuilder, op: str) -> Results:
    """Unsqueeze one or two axes."""
    x = _any(b, 0, 4)
    axes = sorted({b.rng.randint(0, x.rank + 1) for _ in range(2)})
    return b.add(op, x, axes=axes if axes[-1] < x.rank + len(axes) else [0])


def expand(b: GraphBuilder, op: str) -> Results:
    """Expand axes of one element, or add axes in front."""
    x = _any(b)
    shape = [b.rng.choice([1, n]) if n != 1 else b.rng.randint(1, 5) for n in x.shape]
    if b.chance(0.3):
        shape.insert(0, b.rng.randint(1, 3))
    return b.add(op, x, np.array(shape[b.rng.randint(0, len(shape)) :], np.int64))


def tile(b: GraphBuilder, op: str) -> Results:
    """Tile once to three times along each axis."""
    x = _any(b, 1)
    return b.add(op, x, [b.rng.weighted([1, 2, 3], [5, 2, 1]) for _ in x.shape])


def concat(b: GraphBuilder, op: str) -> Results:
    """Concat of one to five values that agree on the other axes, repeated ones too."""
    x = _any(b, 1)
    axis = b.rng.randrange(x.rank)
    parts = [x]
    for _ in range(b.rng.randint(0, 4)):
        fit = b.choose(lambda v: v.dtype == x.dtype and _agree(v.shape, x.shape, axis))
        if fit is None or b.chance(0.3):
            shape = list(x.shape)
            shape[axis] = b.rng.choice([1, 2, 3, 5, 8, 16])
            fit = b.weight(*shape, dtype=x.dtype)
        parts.append(fit)
    b.rng.shuffle(parts)
    return b.add(op, *parts, axis=axis - x.rank if b.chance(0.2) and b.opset > 10 else axis)


def _agree(one: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    rest = [shape[:axis] + shape[axis + 1 :] for shape in (one, other)]
    return len(one) == len(other) and rest[0] == rest[1]


def split(b: GraphBuilder, op: str) -> Results:
    """Split into equal or given sizes."""
    x = _any(b, 1)
    axis = b.rng.randrange(x.rank)
    count = b.rng.randint(1, min(4, max(x.shape[axis], 1)))
    given: dict[str, object] = {}
    if x.shape[axis] % count or b.chance(0.5):
        cuts = sorted(b.rng.randint(0, x.shape[axis]) for _ in range(count - 1))
        sizes = np.diff([0, *cuts, x.shape[axis]])
        if 0 in sizes and b.chance(0.9):
            return None
        given["split"] = sizes.astype(np.int64)
    elif b.opset >= 18:
        given["num_outputs"] = count
    return b.add(op, x, axis=axis, outputs=count, **given)


def slices(b: GraphBuilder, op: str) -> Results:
    """Slice with any signs and steps, ends past the end too."""
    x = _any(b, 1)
    axes = b.axes(x.rank)
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = x.shape[axis]
        step = b.rng.weighted([1, 2, 3, -1, -2], [10, 3, 1, 2, 1]) if b.opset >= 10 else 1
        low = b.rng.randint(0, max(extent - 1, 0))
        high = b.rng.randint(min(low + 1, extent), extent)
        first, last = (low, high) if step > 0 else (high - 1, low - 1)
        if step < 0 and last < 0:
            last = -(2**31)
        elif last == extent and b.chance(0.3):
            last = b.rng.choice([2**31 - 1, 2**63 - 1])
        elif b.chance(0.2) and 0 <= last < extent and extent:
            last -= extent
        starts.append(first - extent if b.chance(0.2) and first > 0 else first)
        ends.append(last)
        steps.append(step)
    given = {"starts": starts, "ends": ends, "axes": axes}
    if any(step != 1 for step in steps):
        given["steps"] = steps
    narrow = np.int32 if b.chance(0.2) and max(map(abs, ends)) < 2**31 else np.int64
    return b.add(op, x, **{name: np.array(values, narrow) for name, values in given.items()})


def pad(b: GraphBuilder, op: str) -> Results:
    """Pad in every mode; constant padding may crop."""
    x = b.take(1, 6) if b.chance(0.9) else _any(b, 1)
    mode = b.rng.choice(["constant", "constant", "reflect", "edge"])
    pads = [b.rng.choice([0, 0, 1, 2, 3]) for _ in range(2 * x.rank)]
    if mode == "constant" and b.chance(0.15):
        pads[b.rng.randrange(len(pads))] = -1
    if mode == "reflect":
        pads = [min(p, max(n - 1, 0)) for p, n in zip(pads, x.shape * 2, strict=True)]
    given: dict[str, object] = {} if mode == "constant" and b.chance(0.5) else {"mode": mode}
    if mode == "constant" and b.chance(0.4):
        fill = np.array(b.rng.choice([0.0, 1.5, -2.0]), FLOAT)
        given["constant_value" if b.opset >= 11 else "value"] = fill.astype(
            x.dtype if b.opset >= 11 else FLOAT
        )
    return b.add(op, x, pads=pads, **given)


def cast(b: GraphBuilder, op: str) -> Results:
    """Cast between any of the types."""
    x = _any(b)
    return b.add(op, x, to=element_type(b.rng.choice(DTYPES)))


def cast_like(b: GraphBuilder, op: str) -> Results:
    """Cast to another value's type."""
    return b.add(op, _any(b), _any(b))


def reverse_sequence(b: GraphBuilder, op: str) -> Results:
    """ReverseSequence of the first two axes, either being time."""
    x = b.take(2, 6)
    time = b.rng.randint(0, 1)
    if not x.shape[time]:
        return None
    draw = np.random.default_rng(b.rng.seed())
    lengths = draw.integers(1, x.shape[time] + 1, x.shape[1 - time])
    given = b.feed(lengths) if b.chance(0.3) else lengths
    return b.add(op, x, given, time_axis=time, batch_axis=1 - time)


def trilu(b: GraphBuilder, op: str) -> Results:
    """Trilu of either half, at any diagonal."""
    k = np.array(b.rng.randint(-3, 3)) if b.chance(0.5) else None
    return b.add(op, _any(b, 2), k, upper=b.rng.randint(0, 1))


def constant_of_shape(b: GraphBuilder, op: str) -> Results:
    """ConstantOfShape of a small shape."""
    shape = np.array([b.rng.randint(1, 4) for _ in range(b.rng.randint(0, 4))], np.int64)
    return b.add(op, shape, value=b.array((1,), b.dtype()) if b.chance(0.7) else None)


def ranges(b: GraphBuilder, op: str) -> Results:
    """Range of either type."""
    dtype = b.rng.choice([INT64, FLOAT])
    return b.add(op, *(np.array(n, dtype) for n in (0, b.rng.randint(1, 20), b.rng.choice([1, 2]))))


def eye_like(b: GraphBuilder, op: str) -> Results:
    """EyeLike at any diagonal."""
    dtype = element_type(FLOAT) if b.chance(0.5) else None
    return b.add(op, b.take(2, 2), k=b.rng.randint(-2, 2), dtype=dtype)


def center_crop_pad(b: GraphBuilder, op: str) -> Results:
    """CenterCropPad to other sizes."""
    x = b.take(1, 5)
    return b.add(op, x, np.array([b.rng.randint(1, 9) for _ in x.shape], np.int64))


def of_anything(b: GraphBuilder, op: str) -> Results:
    """An operator that takes a tensor of any type and shape."""
    return b.add(op, _any(b))


def dropout(b: GraphBuilder, op: str) -> Results:
    """Dropout in inference, with its mask at times."""
    ratio = np.array(0.3, FLOAT) if b.chance(0.5) else None
    return b.add(op, b.take(), ratio=ratio, outputs=2 if b.chance(0.1) else 1)


RECIPES = {
    **dict.fromkeys("Shape Size Identity".split(), of_anything),
    "Reshape": reshape,
    "Transpose": transpose,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "Concat": concat,
    "Split": split,
    "Slice": slices,
    "Pad": pad,
    "Cast": cast,
    "CastLike": cast_like,
    "ReverseSequence": reverse_sequence,
    "Trilu": trilu,
    "ConstantOfShape": constant_of_shape,
    "Range": ranges,
    "EyeLike": eye_like,
    "CenterCropPad": center_crop_pad,
    "Dropout": dropout,
}
