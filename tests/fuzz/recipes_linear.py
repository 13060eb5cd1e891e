"""Products, reductions, normalisations, quantisation: operators over whole axes."""

from __future__ import annotations

import numpy as np

from tests.fuzz.graph_builder import FLOAT, INT64, GraphBuilder, Value, broadcasts

Results = tuple[Value, ...] | None
_UINT8 = np.dtype(np.uint8)


def _whole(b: GraphBuilder, low: int, high: int = 5) -> Value:
    """Return a float value without an empty axis."""
    x = b.take(low, high)
    return x if 0 not in x.shape else b.feed(b.array((2, 3, 5, 4)[-max(low, 1) :]))


def matmul(b: GraphBuilder, op: str) -> Results:
    """MatMul with a weight, with a value that fits, or with itself transposed; batched too."""
    x = _whole(b, 1)
    inner = x.shape[-1]
    fit = b.choose(
        lambda v: (
            v.dtype == FLOAT
            and v.rank >= 2
            and v.shape[-2] == inner
            and broadcasts(v.shape[:-2], x.shape[:-2])
        )
    )
    if fit is not None and b.chance(0.6):
        return b.add(op, x, fit)
    if x.rank > 1 and b.chance(0.2):
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned = b.add("Transpose", x, perm=order)
        return b.add(op, x, turned[0]) if turned else None
    shape = (inner, max(b.extent(), 1)) if b.chance(0.85) else (inner,)
    batch = x.shape[:-2] if b.chance(0.15) and len(shape) == 2 else ()
    return b.add(op, x, b.weight(*batch, *shape))


def gemm(b: GraphBuilder, op: str) -> Results:
    """Gemm with every transposition and factor."""
    x = _whole(b, 2, 2)
    if x.shape[0] * x.shape[1] > 10_000:
        return None
    trans_a, trans_b = (int(b.chance(0.3)) for _ in range(2))
    rows, inner = x.shape[::-1] if trans_a else x.shape
    columns = max(b.extent(), 1)
    weight = b.weight(*((columns, inner) if trans_b else (inner, columns)))
    given: dict[str, object] = {"transA": trans_a, "transB": trans_b}
    if b.chance(0.2):
        given |= {"alpha": 0.5, "beta": b.rng.choice([0.0, 2.0])}
    biases = [(columns,), (rows, columns), (1, columns), (rows, 1), (1,), ()]
    bias = b.weight(*b.rng.choice(biases)) if b.chance(0.6) or b.opset < 11 else None
    return b.add(op, x, weight, bias, **given)


def einsum(b: GraphBuilder, op: str) -> Results:
    """A few of the equations that attention and bilinear layers are written with."""
    i, j, k, n = (b.near(1, 6) for _ in range(4))
    shapes = {
        "bij,bjk->bik": [(n, i, j), (n, j, k)],
        "bij,jk->bik": [(n, i, j), (j, k)],
        "ij->ji": [(i, j)],
        "bhid,bhjd->bhij": [(n, 2, i, k), (n, 2, j, k)],
        "i,j->ij": [(i,), (j,)],
        "...ij,...jk->...ik": [(n, i, j), (n, j, k)],
        "ij->i": [(i, j)],
        "ii->i": [(i, i)],
    }
    equation = b.rng.choice(list(shapes))
    values = [
        b.choose(lambda v, s=shape: v.shape == s and v.dtype == FLOAT) or b.feed(b.array(shape))
        for shape in shapes[equation]
    ]
    return b.add(op, *values, equation=equation)


def reduce(b: GraphBuilder, op: str) -> Results:
    """A reduction over some axes, over all, or, in new opsets, over none."""
    x = _whole(b, 1)
    if op in ("ReduceMax", "ReduceMin", "ReduceSum") and b.chance(0.1):
        x = b.take(1, 5, dtype=b.rng.choice([INT64, np.dtype(np.int32)]))
    if op in ("ReduceLogSum", "ReduceProd"):
        x = _positive(b, x)
    given: dict[str, object] = {"axes": b.axes(x.rank)} if b.chance(0.85) else {}
    if b.chance(0.5):
        given["keepdims"] = b.rng.randint(0, 1)
    if not given.get("axes") and b.chance(0.3):
        given["noop_with_empty_axes"] = 1
    return b.add(op, x, **given)


def _positive(b: GraphBuilder, x: Value) -> Value:
    """Return a value near ``x`` whose numbers are between 0 and 1, not 0."""
    made = b.add("Sigmoid", x) if x.dtype == FLOAT else None
    return made[0] if made else x


def arg(b: GraphBuilder, op: str) -> Results:
    """ArgMax or ArgMin; the first of equals, or the last."""
    x = _whole(b, 1)
    last = {"select_last_index": 1} if b.chance(0.15) else {}
    return b.add(op, x, axis=b.axis(x.rank), keepdims=b.rng.randint(0, 1), **last)


def top_k(b: GraphBuilder, op: str) -> Results:
    """TopK, largest or smallest."""
    x = _whole(b, 1)
    axis = b.axis(x.rank) if b.opset > 10 else b.rng.randrange(x.rank)
    k = np.array([b.rng.randint(1, x.shape[axis])])
    return b.add(op, x, k=k, axis=axis, largest=0 if b.chance(0.3) else None, outputs=2)


def cumulative(b: GraphBuilder, op: str) -> Results:
    """CumSum along any axis, reversed or exclusive at times."""
    x = _whole(b, 1)
    axis = np.array(b.axis(x.rank), np.int32 if b.chance(0.2) else np.int64)
    flags = {name: int(b.chance(0.3)) for name in ("exclusive", "reverse")}
    return b.add(op, x, axis, **flags)


def along_axis(b: GraphBuilder, op: str) -> Results:
    """Softmax, LogSoftmax, Hardmax or LpNormalization along an axis."""
    x = _whole(b, 2)
    axis = b.axis(x.rank) if b.opset > 10 else b.rng.randrange(x.rank)
    power = {"p": b.rng.choice([1, 2])} if op == "LpNormalization" else {}
    return b.add(op, x, axis=axis if b.chance(0.8) else None, **power)


def _positives(b: GraphBuilder, count: int) -> Value:
    return b.constant(np.abs(b.array((count,))) + FLOAT.type(0.5))


def batch_norm(b: GraphBuilder, op: str) -> Results:
    """BatchNormalization in inference."""
    x = _whole(b, 3 if b.chance(0.9) else 2)
    c = x.shape[1]
    epsilon = b.rng.choice([1e-5, 1e-3, 0.1]) if b.chance(0.5) else None
    scale, bias, mean = (b.weight(c) for _ in range(3))
    return b.add(op, x, scale, bias, mean, _positives(b, c), epsilon=epsilon)


def scaled_norm(b: GraphBuilder, op: str) -> Results:
    """InstanceNormalization, or GroupNormalization with its scales per channel or per group."""
    x = _whole(b, 3)
    c = x.shape[1]
    if op == "InstanceNormalization":
        return b.add(op, x, b.weight(c), b.weight(c))
    groups = b.rng.choice([g for g in range(1, c + 1) if c % g == 0])
    scales = c if b.opset >= 21 else groups
    return b.add(op, x, b.weight(scales), b.weight(scales), num_groups=groups)


def layer_norm(b: GraphBuilder, op: str) -> Results:
    """LayerNormalization or RMSNormalization over the last axes."""
    x = _whole(b, 2)
    axis = b.rng.randrange(-x.rank, 0) if b.chance(0.5) else -1
    shape = x.shape[axis:]
    bias = b.weight(*shape) if b.chance(0.6) and op == "LayerNormalization" else None
    return b.add(op, x, b.weight(*shape), bias, axis=axis, epsilon=b.rng.choice([1e-5, 1e-3]))


def mean_variance(b: GraphBuilder, op: str) -> Results:
    """MeanVarianceNormalization over the usual axes or others."""
    x = _whole(b, 4, 4)
    return b.add(op, x, axes=[0, 2, 3] if b.chance(0.5) else None)


def quantize(b: GraphBuilder, op: str) -> Results:
    """QuantizeLinear and back, per tensor or per channel."""
    x = _whole(b, 1)
    axis = b.rng.randrange(x.rank)
    count = x.shape[axis] if b.chance(0.3) else None
    scale = np.abs(b.array(() if count is None else (count,))) + FLOAT.type(0.125)
    if b.opset < 13 and count is not None:
        return None
    kind = b.rng.choice([np.uint8, np.int8])
    zero = np.full(scale.shape, 3, kind) if b.chance(0.7) else np.zeros(scale.shape, np.uint8)
    given = {} if count is None else {"axis": axis}
    quantised = b.add("QuantizeLinear", x, scale, zero, **given)
    if quantised is None or b.chance(0.15):
        return quantised
    return b.add("DequantizeLinear", quantised[0], scale, zero, **given)


def dynamic_quantize(b: GraphBuilder, op: str) -> Results:
    """DynamicQuantizeLinear."""
    return b.add(op, _whole(b, 1), outputs=3)


def integer_matmul(b: GraphBuilder, op: str) -> Results:
    """MatMulInteger or QLinearMatMul."""
    m, k, n = (b.count([1, 3, 4, 8, 17]) for _ in range(3))
    x, w = b.feed(b.array((m, k), _UINT8)), b.weight(k, n, dtype=_UINT8)
    zero = np.array(2, np.uint8)
    if op == "MatMulInteger":
        return b.add(op, x, w, zero if b.chance(0.5) else None)
    scale = [np.array(0.1, np.float32), zero]
    return b.add(op, x, *scale, w, *scale, np.array(0.5, np.float32), zero)


def recurrent(b: GraphBuilder, op: str) -> Results:
    """LSTM, GRU or RNN, one way or both."""
    x = b.take(3, 3)
    if 0 in x.shape or max(x.shape) > 17:
        x = b.feed(b.array((4, 2, 3)))
    hidden, ways = b.count([1, 3, 5]), 1 + b.chance(0.3)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
    w, r = b.weight(ways, gates, x.shape[2]), b.weight(ways, gates, hidden)
    bias = b.weight(ways, 2 * gates) if b.chance(0.6) else None
    direction = "bidirectional" if ways == 2 else b.rng.choice(["forward", "reverse"])
    outputs = b.rng.randint(1, 3 if op == "LSTM" else 2)
    return b.add(op, x, w, r, bias, hidden_size=hidden, direction=direction, outputs=outputs)


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
RECIPES = {
    **dict.fromkeys("LSTM GRU RNN".split(), recurrent),
    **dict.fromkeys("MatMulInteger QLinearMatMul".split(), integer_matmul),
    **dict.fromkeys("QuantizeLinear DequantizeLinear".split(), quantize),
    **dict.fromkeys("LayerNormalization RMSNormalization".split(), layer_norm),
    **dict.fromkeys("InstanceNormalization GroupNormalization".split(), scaled_norm),
    **dict.fromkeys("Softmax LogSoftmax Hardmax LpNormalization".split(), along_axis),
    **dict.fromkeys("ArgMax ArgMin".split(), arg),
    "MatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
    **{f"Reduce{name}": reduce for name in _REDUCTIONS},
    "TopK": top_k,
    "CumSum": cumulative,
    "BatchNormalization": batch_norm,
    "MeanVarianceNormalization": mean_variance,
    "DynamicQuantizeLinear": dynamic_quantize,
}
