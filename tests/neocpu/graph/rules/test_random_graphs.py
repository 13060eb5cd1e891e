"""Random graphs of operators that rules look at compute the same after simplification."""

from collections import Counter

import numpy as np
import pytest
from op_counts import op_counts
from relax_modules import evaluate, module
from tvm import relax

from neocpu.graph.simplify import simplify
from neocpu.ir.constants import make_const
from neocpu.ir.expressions import static_shape
from tests import needs

R = relax.op
SHAPE = (2, 4, 3, 6)


class Grower:
    """Adds operators at random to a graph whose values are float32."""

    def __init__(self, seed, bb, x):
        self.rng = np.random.default_rng(seed)
        self.bb = bb
        self.values = [x]

    def any(self):
        # The latest are likelier: chains are what rules look for.
        back = min(int(self.rng.geometric(0.6)), len(self.values))
        return self.values[-back]

    def axis(self, value):
        return int(self.rng.integers(len(static_shape(value))))

    def constant(self, *shape):
        return make_const(self.rng.choice([0.0, 0.5, 1.0, 2.0, -1.0], shape).astype("float32"))

    def grow(self):
        makers = (
            *(self.unary, self.unary, self.clamp, self.cast, self.arithmetic, self.arithmetic),
            *(self.cut, self.cut, self.pad, self.transpose, self.reshape, self.join, self.join),
            *(self.split, self.reduce, self.dense, self.pair),
        )
        made = makers[self.rng.integers(len(makers))](self.any())
        for each in made if isinstance(made, list) else [made]:
            self.values.append(self.bb.emit(each))

    def unary(self, x):
        operators = (R.negative, R.abs, R.floor, R.sign, R.sigmoid, R.nn.relu, R.round, R.tanh)
        return operators[self.rng.integers(len(operators))](x)

    def clamp(self, x):
        low, high = sorted(self.rng.choice([-np.inf, -1, 0, 0.5, 1, 6, np.inf], 2, replace=False))
        return R.clip(x, float(low), float(high))

    def cast(self, x):
        wide = self.rng.choice(["float64", "float32", "float16", "int32"])
        return R.astype(self.bb.emit(R.astype(x, wide)), "float32")

    def arithmetic(self, x):
        shape = static_shape(x)
        kept = [extent if self.rng.random() < 0.3 else 1 for extent in shape]
        operator = (R.add, R.multiply, R.subtract, R.maximum)[self.rng.integers(4)]
        return operator(x, self.constant(*kept[int(self.rng.integers(len(kept) + 1)) :]))

    def cut(self, x):
        axes = sorted({self.axis(x), self.axis(x)})
        begin, end = [], []
        for axis in axes:
            extent = static_shape(x)[axis]
            first = int(self.rng.integers(extent))
            begin.append(first - extent if self.rng.random() < 0.3 else first)
            end.append(int(self.rng.integers(first + 1, extent + 1)))
        return R.strided_slice(x, axes, begin, end)

    def pad(self, x):
        widths = self.rng.integers(0, 2, 2 * len(static_shape(x)))
        return R.nn.pad(x, [int(width) for width in widths], pad_value=float(self.rng.integers(2)))

    def transpose(self, x):
        return R.permute_dims(x, [int(a) for a in self.rng.permutation(len(static_shape(x)))])

    def reshape(self, x):
        shape = list(static_shape(x))
        if len(shape) > 2 and self.rng.random() < 0.5:
            at = int(self.rng.integers(len(shape) - 1))
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            shape.insert(int(self.rng.integers(len(shape) + 1)), 1)
        return R.reshape(x, shape)

    def join(self, x):
        axis, shape = self.axis(x), static_shape(x)
        fits = [
            value
            for value in self.values
            if len(static_shape(value)) == len(shape)
            and static_shape(value)[:axis] == shape[:axis]
            and static_shape(value)[axis + 1 :] == shape[axis + 1 :]
        ]
        others = [fits[int(self.rng.integers(len(fits)))] for _ in range(2)]
        return R.concat([*others, x][: int(self.rng.integers(1, 4))], axis)

    def split(self, x):
        axis = self.axis(x)
        extent = static_shape(x)[axis]
        if extent < 2:
            return R.negative(x)
        at = int(self.rng.integers(1, extent))
        parts = self.bb.emit(R.split(x, [at], axis))
        items = [self.bb.emit(relax.TupleGetItem(parts, index)) for index in range(2)]
        if self.rng.random() < 0.5:
            return [R.concat(items, axis)]
        return [R.abs(item) for item in items]

    def reduce(self, x):
        return (R.max, R.min, R.sum)[self.rng.integers(3)](x, [self.axis(x)], keepdims=True)

    def dense(self, x):
        return R.matmul(x, self.constant(static_shape(x)[-1], 3))

    def pair(self, x):
        return (R.maximum, R.add, R.multiply)[self.rng.integers(3)](x, x)


def random_graph(seed):
    def body(bb, x):
        grower = Grower(seed, bb, x)
        for _ in range(14):
            grower.grow()
        return grower.values[-1], grower.values[int(grower.rng.integers(len(grower.values)))]

    return module(body, SHAPE)


def assert_simplified_alike(seed, fired):
    before = random_graph(seed)
    after = simplify(before, fired=fired)
    relax.analysis.well_formed(after)
    x = np.random.default_rng(seed).choice([-2.5, -1, -0.25, 0.5, 1.5, 3], SHAPE).astype("float32")
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(after, x), evaluate(before, x), strict=True)
        for mine, theirs in pairs:
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
    assert sum(op_counts(after).values()) <= sum(op_counts(before).values()), seed


def test_random_graphs_compute_the_same():
    fired = Counter()
    for seed in range(40):
        assert_simplified_alike(seed, fired)
    assert len(fired) > 12


@needs.everything()
@pytest.mark.parametrize("part", range(20))
def test_many_random_graphs_compute_the_same(part):
    for seed in range(100 * (part + 1), 100 * (part + 2)):
        assert_simplified_alike(seed, Counter())
