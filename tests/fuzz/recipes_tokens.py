"""Blocks of transformers: spellings of attention, windows, tokens, normalisations."""

from __future__ import annotations

import numpy as np

from tests.fuzz.graph_builder import FLOAT, Value
from tests.fuzz.writer import Writer, recipe


def _tokens(w: Writer) -> Value:
    """Return rows of channels, existing ones or those of a feature map."""
    if w.chance(0.6):
        return w.value(3, (1, 2, 4), (4, 19, 24))
    x = w.value(4, (1, 4, 1, 1), (3, 16, 6, 7))
    n, c, h, width = x.shape
    return w.add("Transpose", w.reshape(x, n, c, h * width), perm=[0, 2, 1])


def _linear(w: Writer, x: Value, columns: int) -> Value:
    y = w.add("MatMul", x, w.small(x.shape[-1], columns))
    return w.add("Add", y, w.small(columns)) if w.chance(0.5) else y


def _in_heads(w: Writer, x: Value, heads: int, order: list[int]) -> Value:
    n, t, c = x.shape
    return w.add("Transpose", w.reshape(x, n, t, heads, c // heads), perm=order)


def _joint(w: Writer, x: Value, heads: int) -> list[Value]:
    """Queries, keys and values of one dense layer, split by an axis of their own."""
    n, t, c = x.shape
    y = w.reshape(_linear(w, x, 3 * c), n, t, 3, heads, c // heads)
    y = w.add("Transpose", y, perm=[2, 0, 3, 1, 4])
    if w.chance(0.5):
        return [w.add("Gather", y, np.array(i), axis=0) for i in range(3)]
    return [w.add("Squeeze", part, axes=[0]) for part in w.split(y, 0, [1, 1, 1])]


def _apart(w: Writer, x: Value, heads: int) -> list[Value]:
    """Return separate queries, keys and values, by slices or layers, perhaps of other tokens."""
    _, t, c = x.shape
    if w.chance(0.4):
        found = w.split(_linear(w, x, 3 * c), -1, [c, c, c])
    else:
        other = w.cut(x, 1, 0, w.rng.randint(1, t)) if w.chance(0.4) else x
        found = [_linear(w, each, c) for each in (x, other, other)]
    return [_in_heads(w, each, heads, [0, 2, 1, 3]) for each in found]


def _scaled(w: Writer, x: Value, factor: float) -> Value:
    if w.chance(0.7):
        return w.add("Mul", x, w.number(factor))
    return w.add("Div", x, w.number(1 / factor))


def _scores(w: Writer, q: Value, k: Value) -> Value:
    """Return ``q kᵀ``, scaled somewhere."""
    factor = w.rng.choice([1.0, 0.25, q.shape[-1] ** -0.5])
    where = w.rng.choice(["queries", "keys", "both", "scores", "nowhere"])
    q = _scaled(w, q, factor) if where in ("queries", "both") else q
    k = _scaled(w, k, factor) if where == "keys" else k
    k = w.add("Transpose", k, perm=[*range(k.rank - 2), k.rank - 1, k.rank - 2])
    k = _scaled(w, k, factor) if where == "both" else k
    scores = w.add("MatMul", q, k)
    return _scaled(w, scores, factor) if where == "scores" else scores


def _biased(w: Writer, scores: Value) -> Value:
    """Return scores with an addition: a position's bias, a mask, or one of windows."""
    n, heads, t, keys = scores.shape
    if w.chance(0.3) and n % 2 == 0:
        groups = w.reshape(scores, n // 2, 2, heads, t, keys)
        masked = w.add("Add", groups, _mask(w, (1, 2, 1, t, keys)))
        return w.reshape(masked, n, heads, t, keys)
    shapes = [(heads, t, keys), (1, heads, t, keys), (t, keys), (n, 1, 1, keys), (heads, 1, 1)]
    shape = w.rng.choice([*shapes, (t, 1), (keys,), (n, heads, t, keys)])
    bias = w.small(*shape) if w.chance(0.7) else _mask(w, shape)
    if w.chance(0.2):
        bias = w.builder.feed(np.asarray(bias.array))
    return w.add("Add", *((scores, bias) if w.chance(0.8) else (bias, scores)))


def _mask(w: Writer, shape: tuple[int, ...]) -> Value:
    chosen = w.builder.array(shape) > 1.0
    low = w.rng.choice([-100.0, -1e9, float(np.finfo(FLOAT).min), -np.inf])
    return w.builder.constant(np.where(chosen, FLOAT.type(low), FLOAT.type(0)))


def _softmax(w: Writer, x: Value) -> Value:
    if w.chance(0.85):
        return w.add("Softmax", x, axis=-1 if w.builder.opset > 12 else x.rank - 1)
    largest = w.add("ReduceMax", x, axes=[x.rank - 1], keepdims=1)
    powers = w.add("Exp", w.add("Sub", x, largest))
    return w.add("Div", powers, w.add("ReduceSum", powers, axes=[x.rank - 1], keepdims=1))


def _attention(w: Writer) -> Value:
    x = _tokens(w)
    n, t, c = x.shape
    heads = w.divisor(c, 4)
    q, k, v = (_joint if w.chance(0.5) else _apart)(w, x, heads)
    if w.chance(0.15):  # of channels, and not of tokens
        q, k, v = (w.add("Transpose", each, perm=[0, 1, 3, 2]) for each in (q, k, v))
        if q.shape != k.shape:
            return q
    if w.chance(0.15):
        k, v = (w.cut(each, 1, 0, 1) for each in (k, v))  # all heads share them
    scores = _scores(w, q, k)
    scores = _biased(w, scores) if w.chance(0.6) else scores
    mixed = w.add("MatMul", _softmax(w, scores), v)
    mixed = mixed if q.shape[2] == t else w.add("Transpose", mixed, perm=[0, 1, 3, 2])
    if mixed.shape != (n, heads, t, c // heads):
        return mixed
    y = w.reshape(w.add("Transpose", mixed, perm=[0, 2, 1, 3]), n, t, c)
    y = _linear(w, y, c) if w.chance(0.5) else y
    return w.add("Add", x, y) if w.chance(0.5) else y


def _linear_attention(w: Writer) -> Value:
    """Attention without a softmax: ``q (kᵀ v)``, divided by its sums."""
    x = _tokens(w)
    n, t, c = x.shape
    heads = w.divisor(c, 4)
    q, k, v = _joint(w, x, heads)
    q, k = (w.add("Relu", each) for each in (q, k))
    k = w.add("Transpose", k, perm=[0, 1, 3, 2])
    mixed = w.add("MatMul", q, w.add("MatMul", k, v))
    if w.chance(0.5):
        total = w.add("ReduceSum", k, axes=[3], keepdims=1)
        below = w.add("Add", w.add("MatMul", q, total), w.number(1.0))
        mixed = w.add("Div", mixed, below)
    return w.reshape(w.add("Transpose", mixed, perm=[0, 2, 1, 3]), n, t, c)


def _normalised(w: Writer) -> Value:
    """A layer or instance normalisation as exporters wrote it before opset 17."""
    rank = w.rng.choice([3, 4])
    x = w.value(rank, (1, 2, 2, 2)[:rank], (3, 17, 7, 8)[:rank])
    axes = w.rng.choice([[x.rank - 1], [1], [2, 3] if x.rank == 4 else [1, 2]])
    axes = [axis - x.rank for axis in axes] if w.chance(0.3) else axes
    centred = w.add("Sub", x, w.add("ReduceMean", x, axes=axes, keepdims=1))
    if w.chance(0.7):
        square = w.add("Pow", centred, w.number(2.0))
    else:
        square = w.add("Mul", centred, centred)
    variance = w.add("ReduceMean", square, axes=axes, keepdims=1)
    root = w.add("Sqrt", w.add("Add", variance, w.number(w.rng.choice([1e-6, 1e-3]))))
    y = w.add("Div", centred, root)
    reduced = {axis % x.rank for axis in axes}
    shape = [n if axis in reduced else 1 for axis, n in enumerate(x.shape)]
    for op in ("Mul", "Add"):
        if w.chance(0.7):
            y = w.add(op, y, w.builder.weight(*shape))
    return y


def _windows(w: Writer) -> Value:
    """Cut a map to windows, mix the channels of these, and put them together again."""
    x = w.value(4, (1, 4, 2, 2), (3, 12, 9, 8))
    last = w.chance(0.7)
    x = w.add("Transpose", x, perm=[0, 2, 3, 1]) if last else x
    n, h, width, c = x.shape if last else (*x.shape[:1], *x.shape[2:], x.shape[1])
    rows, columns = w.divisor(h), w.divisor(width)
    if last and w.chance(0.4) and h > 1:  # rolled
        turn = w.rng.randint(1, h - 1)
        x = w.add("Concat", w.cut(x, 1, turn, h), w.cut(x, 1, 0, turn), axis=1)
    across = (h // rows, rows, width // columns, columns)
    if last:
        cut, there, back = (n, *across, c), [0, 1, 3, 2, 4, 5], [0, 1, 3, 2, 4, 5]
    else:
        cut, there, back = (n, c, *across), [0, 2, 4, 3, 5, 1], [0, 5, 1, 3, 2, 4]
    y = w.add("Transpose", w.reshape(x, *cut), perm=there)
    y = w.reshape(y, -1, rows * columns, c)
    y = _linear(w, y, c)
    y = w.reshape(y, n, h // rows, width // columns, rows, columns, c)
    y = w.reshape(w.add("Transpose", y, perm=back), *x.shape)
    return w.add("Transpose", y, perm=[0, 3, 1, 2]) if last and w.chance(0.7) else y


def _mlp(w: Writer) -> Value:
    """Two dense layers over rows of channels, or over their transposition."""
    x = _tokens(w)
    across = w.chance(0.3)
    y = w.add("Transpose", x, perm=[0, 2, 1]) if across else x
    y = _activated(w, _linear(w, y, w.count([5, 8, 16, 33])))
    y = _linear(w, y, x.shape[1 if across else 2])
    y = w.add("Transpose", y, perm=[0, 2, 1]) if across else y
    if w.chance(0.3):
        y = w.add("Mul", y, w.small(x.shape[2]))
    return w.add("Add", x, y)


def _activated(w: Writer, x: Value) -> Value:
    kind = w.rng.choice(["gelu", "silu", "relu", "hard swish"])
    if kind == "relu":
        return w.add("Relu", x)
    if kind == "silu":
        return w.add("Mul", x, w.add("Sigmoid", x))
    if kind == "hard swish":
        shifted = w.add(
            "Clip", w.add("Add", x, w.number(3.0)), min=np.float32(0), max=np.float32(6)
        )
        return w.add("Div", w.add("Mul", x, shifted), w.number(6.0))
    erf = w.add("Erf", w.add("Div", x, w.number(2**0.5)))
    y = w.add("Mul", x, w.add("Add", erf, w.number(1.0)))
    return w.add("Mul", y, w.number(0.5))


def _class_token(w: Writer) -> Value:
    """Put a token before the others, add positions, and take the first one, or all the others."""
    x = _tokens(w)
    n, t, c = x.shape
    first = w.add("Expand", w.small(1, 1, c), np.array([n, 1, c], np.int64))
    y = w.add("Add", w.add("Concat", first, x, axis=1), w.small(1, t + 1, c))
    y = _linear(w, y, c) if w.chance(0.6) else y
    if w.chance(0.5):
        y = w.add("Gather", y, np.array(w.rng.choice([0, -1, t])), axis=1)
        return _linear(w, y, 5)
    return w.cut(y, 1, 1, t + 1)


def _map_of_tokens(w: Writer) -> Value:
    """Return rows of channels as a map, convolved by channel."""
    x = _tokens(w)
    n, t, c = x.shape
    height = w.divisor(t)
    if w.chance(0.7):
        y = w.reshape(w.add("Transpose", x, perm=[0, 2, 1]), n, c, height, t // height)
    else:
        y = w.add("Transpose", w.reshape(x, n, height, t // height, c), perm=[0, 3, 1, 2])
    groups = c if w.chance(0.5) else 1
    y = w.add("Conv", y, w.small(c, c // groups, 3, 3), group=groups, pads=[1, 1, 1, 1])
    if w.chance(0.5):
        return y
    y = w.add("Transpose", w.reshape(y, n, c, t), perm=[0, 2, 1])
    return w.add("Add", x, y)


_BLOCKS = {
    "attention": _attention,
    "linear attention": _linear_attention,
    "normalisation": _normalised,
    "windows": _windows,
    "dense layers": _mlp,
    "class token": _class_token,
    "map of tokens": _map_of_tokens,
}
RECIPES = {name: recipe(write) for name, write in _BLOCKS.items()}
