"""Blocks of convolutional networks: branches, pyramids, volumes, wide windows, loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from tests.fuzz.graph_builder import BOOL, INT64, GraphBuilder, Value
from tests.fuzz.writer import Writer, recipe


def _map(w: Writer) -> Value:
    return w.value(4, (1, 2, 1, 1), (3, 17, 13, 14))


def _conv(
    w: Writer, x: Value, outs: int, kernel: Sequence[int], group: int = 1, **attributes: object
) -> Value:
    """Convolve, mostly to a map of the same size."""
    given = {"pads": [extent // 2 for extent in kernel] * 2, "group": group} | attributes
    weight = w.small(outs, x.shape[1] // group, *kernel)
    bias = w.small(outs) if w.chance(0.5) else None
    return w.add("Conv", x, weight, bias, **given)


def _affine(w: Writer, x: Value) -> Value:
    """Scale and shift each channel: a batch normalisation, or two steps of other shapes."""
    c, rest = x.shape[1], [1] * (x.rank - 2)
    if w.chance(0.5):
        positive = w.builder.constant(np.abs(w.builder.array((c,))) + np.float32(0.5))
        return w.add("BatchNormalization", x, *(w.builder.weight(c) for _ in range(3)), positive)
    shapes = [(c, *rest), (1, c, *rest), (1,), ()]
    x = w.add("Mul", x, w.builder.weight(*w.rng.choice(shapes)))
    return w.add("Add", x, w.builder.weight(*w.rng.choice(shapes)))


def _step(w: Writer, x: Value) -> Value:
    """One elementwise step, or none."""
    kind = w.rng.choice(["none", "affine", "Relu", "Sigmoid", "Tanh", "Neg", "HardSigmoid"])
    if kind in ("none", "affine"):
        return x if kind == "none" else _affine(w, x)
    return w.add(kind, x)


def _parallel(w: Writer) -> Value:
    """Sum convolutions of one map, the map itself and a scaled map: RepVGG's branches."""
    x = _map(w)
    c = x.shape[1]
    kernels = [(1, 1), (3, 3), (1, 3), (3, 1), (5, 5)]
    group = w.rng.choice([1, 1, c, w.divisor(c)])
    total = x if w.chance(0.4) else _conv(w, x, c, w.rng.choice(kernels), group)
    for _ in range(w.rng.randint(1, 3)):
        kind = w.rng.choice(["map", "affine", "convolution", "convolution"])
        term = x if kind == "map" else _affine(w, x) if kind == "affine" else None
        term = term or _conv(w, x, c, w.rng.choice(kernels), group)
        total = w.add("Add", *((total, term) if w.chance(0.5) else (term, total)))
    return _step(w, total)


def _in_a_row(w: Writer) -> Value:
    """Convolutions in a row with little between them, some 1x1, some strided, and a mean."""
    x = _map(w)
    for _ in range(w.rng.randint(2, 3)):
        size = w.rng.choice([1, 1, 3])
        stride = w.rng.choice([1, 1, 2])
        x = _conv(w, x, w.count([1, 3, 8, 17]), [size] * 2, strides=[stride] * 2)
        x = _affine(w, x) if w.chance(0.2) else x
        if w.chance(0.3) and min(x.shape[2:]) > 2:
            given = {"ceil_mode": 1} if w.chance(0.4) and w.builder.opset > 9 else {}
            given |= {"pads": [1, 1, 1, 1]} if w.chance(0.3) else {}
            given |= {"count_include_pad": 1} if w.chance(0.5) else {}
            kernel = [w.rng.choice([2, 3])] * 2
            x = w.add("AveragePool", x, kernel_shape=kernel, strides=[2, 2], **given)
    if w.chance(0.3):
        x = w.add("GlobalAveragePool", x)
    elif w.chance(0.2):
        x = w.add("ReduceMean", x, axes=[2, 3], keepdims=1)
    return _conv(w, x, 5, [1, 1]) if w.chance(0.5) else x


def _wide(w: Writer) -> Value:
    """A 3x3 convolution with widely spaced taps, as in segmentation; often beyond the edges."""
    x = w.value(4, (1, 8, 5, 5), (2, 17, 17, 19))
    across = [w.rng.choice([2, 3, 4, 6, 12]) for _ in range(2)]
    dilations = across if w.chance(0.3) else [across[0]] * 2
    pads = [w.rng.choice([d, d, d, 0, 1, 2 * d]) for d in dilations] * 2
    if w.chance(0.2):
        pads[2:] = [w.rng.randint(0, 3) for _ in range(2)]
    group = x.shape[1] if w.chance(0.2) else 1
    outs = group if group > 1 else w.count([16])
    x = _conv(w, x, outs, [3, 3], group, dilations=dilations, pads=pads)
    return _step(w, x)


def _excited(w: Writer) -> Value:
    """Scale channels by two layers of their means: squeeze and excitation."""
    x = w.value(4, (1, 2, 1, 1), (3, 70, 9, 9))
    c = x.shape[1]
    pooled = w.add("GlobalAveragePool", x) if w.chance(0.6) else None
    pooled = pooled or w.add("ReduceMean", x, axes=[2, 3], keepdims=1)
    hidden = w.rng.choice([c, c, max(c // 4, 1), w.count([5, 16, 33])])
    squeezed = w.add(
        w.rng.choice(["Relu", "HardSigmoid", "Tanh"]), _conv(w, pooled, hidden, [1, 1])
    )
    outs = c if w.chance(0.8) else w.count([3, 48])
    gate = w.add(w.rng.choice(["Sigmoid", "HardSigmoid"]), _conv(w, squeezed, outs, [1, 1]))
    return w.add("Mul", *((x, gate) if w.chance(0.5) else (gate, x))) if outs == c else gate


def _pyramid(w: Writer) -> Value:
    """Enlarge maps, concatenate them with others, and mix the channels."""
    x = _map(w)
    n, _, h, width = x.shape
    small = w.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]) if min(h, width) > 1 else x
    small = _step(w, small if w.chance(0.5) else w.add("GlobalAveragePool", x))
    nothing = np.zeros(0, np.float32) if w.builder.opset < 13 else None
    mode = w.rng.choice(["nearest", "linear"])
    if w.builder.opset < 11:
        return _conv(w, small, 8, [1, 1])
    sizes = np.array([n, small.shape[1], h, width], np.int64)
    large = w.add("Resize", small, roi=nothing, scales=nothing, sizes=sizes, mode=mode)
    if w.chance(0.3):
        return _step(w, _conv(w, large, 8, [1, 1]))
    parts = [large, x, *([large] if w.chance(0.2) else [])]
    w.rng.shuffle(parts)
    return _step(w, _conv(w, w.add("Concat", *parts, axis=1), w.count([2, 8]), [1, 1]))


def _grouped(w: Writer) -> Value:
    """Convolve parts of the channels, and concatenate: a grouped or mixed convolution."""
    x = _map(w)
    c = x.shape[1]
    count = w.divisor(c, 4)
    parts = w.split(x, 1, [c // count] * count)
    same = w.rng.choice([[1, 1], [3, 3]])
    made = [_conv(w, p, 4, same if w.chance(0.8) else [5, 5]) for p in parts]
    if w.chance(0.15):
        w.rng.shuffle(made)
    y = w.add("Concat", *made, axis=1)
    y = _affine(w, y) if w.chance(0.5) else y
    if w.chance(0.4):  # shuffled
        n, c, h, width = y.shape
        turned = w.add("Transpose", w.reshape(y, n, 4, c // 4, h, width), perm=[0, 2, 1, 3, 4])
        return _conv(w, w.reshape(turned, n, c, h, width), 8, [1, 1])
    return w.cut(y, 1, 1, y.shape[1]) if w.chance(0.3) and y.shape[1] > 1 else y


def _volumes(w: Writer) -> Value:
    """Convolve, pool, normalise and add volumes."""
    x = w.value(5, (1, 1, 1, 1, 1), (2, 9, 5, 6, 7))
    for _ in range(w.rng.randint(1, 3)):
        kind = w.rng.choice(["conv", "conv", "pool", "step", "gate", "concat"])
        if kind == "conv":
            kernel = w.rng.choice([[1, 1, 1], [3, 1, 1], [1, 3, 3], [3, 3, 3], [2, 3, 1]])
            c = x.shape[1]
            group = w.rng.choice([1, 1, 1, c])
            pads = [e // 2 for e in kernel] * 2
            pads[0] = w.rng.choice([pads[0], 0, 2]) if kernel[0] <= x.shape[2] else pads[0]
            given = {"strides": [w.rng.choice([1, 1, 2]) for _ in range(3)], "pads": pads}
            outs = c if group > 1 else w.count([1, 4, 8, 17])
            y = _step(w, _conv(w, x, outs, kernel, group, **given))
            x = w.add("Add", x, y) if y.shape == x.shape else y
        elif kind == "pool":
            op = w.rng.choice(["MaxPool", "AveragePool"])
            kernel = [w.rng.randint(1, min(3, n)) for n in x.shape[2:]]
            pads = [w.rng.randint(0, k // 2) for k in kernel] * 2
            x = w.add(op, x, kernel_shape=kernel, pads=pads, strides=[1, 2, 2])
        elif kind == "step":
            x = _step(w, x)
        elif kind == "gate":
            gate = (
                w.add("GlobalAveragePool", x) if w.chance(0.7) else w.small(*x.shape[:2], 1, 1, 1)
            )
            x = w.add("Mul", x, w.add("Sigmoid", gate))
        else:
            x = w.add("Concat", x, _step(w, x), axis=1)
    return x


def _redundant(w: Writer) -> Value:
    """Add what exporters leave behind: pads cut again, expanded operands, repeated clamps."""
    x = _map(w)
    n, c, h, width = x.shape
    kind = w.rng.choice(["pad", "expand", "clamps", "parts", "flipped", "repeated"])
    if kind == "pad" and w.builder.opset > 10:
        y = w.add("Pad", x, pads=[0, 0, 1, 2, 0, 0, 2, 1])
        first = w.rng.randint(0, 3)
        return w.cut(y, 2, first, h + w.rng.randint(0, 3))
    if kind == "expand":
        small = w.builder.feed(w.builder.array((c, 1, 1)))
        large = w.add("Expand", small, np.array([n, c, h, width], np.int64))
        return w.add(w.rng.choice(["Add", "Mul", "Sub"]), x, large)
    if kind == "clamps":
        y = w.add(w.rng.choice(["Sigmoid", "Relu", "Tanh", "Abs"]), x)
        y = w.add("MaxPool", y, kernel_shape=[1, 1]) if w.chance(0.3) else y
        return w.add("Clip", w.add("Relu", y), min=np.float32(0), max=np.float32(6))
    if kind == "parts" and c > 1:
        parts = w.split(x, 1, [1, c - 1])
        return w.add("Concat", *(parts if w.chance(0.6) else [*parts[::-1], x]), axis=1)
    if kind == "flipped" and w.builder.opset > 9:
        y = w.add("Slice", x, starts=[-1], ends=[-9999], axes=[3], steps=[-1])
        return w.add("Slice", _step(w, y), starts=[0], ends=[width], axes=[3], steps=[2])
    return w.add("Neg", w.add("Neg", w.add("Add", x, x)))


def _steps(w: Writer) -> Value:
    """Loop so often that the loop is not written out; a state, and rows of each step."""
    x = w.value(2, (1, 1), (5, 9))
    b = w.builder
    inner = GraphBuilder(b.rng, b.opset, f"{b.fresh()}_")
    names = [Value(inner.fresh(), *kind) for kind in ((INT64, ()), (BOOL, ()), (x.dtype, x.shape))]
    inner.inputs += names
    inner.values += [names[2], x]
    step = Writer(inner)
    going = step.add("Identity", names[1])
    state = step.add("Tanh", step.add("Add", names[2], x))
    if w.chance(0.5):
        state = step.add("Add", state, step.add("Cast", names[0], to=1))
    row = step.add("Mul", state, step.number(0.5)) if w.chance(0.6) else state
    trips = b.constant(np.array(w.rng.choice([90, 130, 257])))
    start = b.constant(np.array(True))
    b.keep(trips)
    b.keep(start)
    made = [Value(b.fresh(), x.dtype, x.shape)]
    made.append(Value(b.fresh(), x.dtype, (int(trips.array), *x.shape)))
    body = inner.graph([going, state, row], "body")
    inputs = [trips.name, start.name, x.name]
    b.nodes.append(helper.make_node("Loop", inputs, [v.name for v in made], body=body))
    b.values += made
    return made[1]


_BLOCKS = {
    "parallel convolutions": _parallel,
    "convolutions in a row": _in_a_row,
    "wide windows": _wide,
    "excited": _excited,
    "pyramid": _pyramid,
    "groups": _grouped,
    "volumes": _volumes,
    "redundant": _redundant,
    "many steps": _steps,
}
RECIPES = {name: recipe(write) for name, write in _BLOCKS.items()}
