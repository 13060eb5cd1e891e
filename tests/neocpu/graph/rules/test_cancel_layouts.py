"""Transposes and reshapes that undo each other vanish past elementwise operators."""

import numpy as np
import pytest
from relax_modules import applied, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.cancel_layouts import cancel_layouts

R = relax.op
IMAGE, LAST = (2, 3, 4, 5), (2, 4, 5, 3)
RNG = np.random.default_rng(0)


def to_last(x):
    return R.permute_dims(x, [0, 2, 3, 1])


def to_first(x):
    return R.permute_dims(x, [0, 3, 1, 2])


def unary(bb, x):
    return bb.emit(to_first(bb.emit(R.nn.silu(bb.emit(R.clip(bb.emit(to_last(x)), 0, 6))))))


def constants(bb, x):
    y = bb.emit(R.multiply(bb.emit(to_last(x)), const(RNG, 3)))
    y = bb.emit(R.add(y, const(RNG, 4, 1, 1)))
    return bb.emit(to_first(bb.emit(R.divide(y, relax.const(2.0)))))


def sums(bb, x):
    return bb.emit(
        to_first(bb.emit(R.add(bb.emit(to_last(bb.emit(R.exp(x)))), bb.emit(to_last(x)))))
    )


def shared(bb, x):
    """Emit two transposes; the first has another reader, so that one of them stays."""
    moved = bb.emit(to_last(x))
    return bb.emit(to_first(bb.emit(R.exp(moved)))), bb.emit(R.nn.softmax(moved, -1))


def reshaped(bb, x):
    rows = bb.emit(R.reshape(x, (2, 60)))
    y = bb.emit(R.add(bb.emit(R.tanh(rows)), const(RNG, 2, 60)))
    return bb.emit(R.reshape(y, IMAGE))


def joined(bb, x):
    parts = [bb.emit(R.tanh(bb.emit(to_last(x)))), bb.emit(to_last(bb.emit(R.exp(x))))]
    return bb.emit(to_first(bb.emit(R.concat(parts, 3))))


def heads(bb, x):
    """Mix heads on the last axis before and after an operator on each head, as CaiT does."""
    y = bb.emit(R.matmul(bb.emit(to_last(x)), const(RNG, 3, 7)))
    y = bb.emit(R.tanh(bb.emit(R.add(y, const(RNG, 7)))))
    return bb.emit(to_first(bb.emit(R.matmul(y, const(RNG, 7, 2)))))


CANCELLED = {
    "unary": (unary, ["clip", "nn.silu"]),
    "joined": (joined, ["exp", "tanh", "concat"]),
    "constants": (constants, ["multiply", "add", "divide"]),
    "sums": (sums, ["exp", "add"]),
    "shared": (shared, ["permute_dims", "exp", "nn.softmax"]),
    "reshaped": (reshaped, ["tanh", "add"]),
    "heads": (heads, ["nn.conv2d", "add", "tanh", "nn.conv2d"]),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_opposite_transposes_vanish(name):
    body, expected = CANCELLED[name]
    assert names(applied(cancel_layouts, body, IMAGE)) == expected


def residual(bb, x, y):
    return bb.emit(to_first(bb.emit(R.add(bb.emit(R.exp(bb.emit(to_last(x)))), y))))


def test_one_transpose_is_left_of_two():
    after = applied(cancel_layouts, residual, IMAGE, LAST)
    assert sorted(names(after)) == ["add", "exp", "permute_dims"]


def another(bb, x):
    return bb.emit(R.permute_dims(bb.emit(R.exp(bb.emit(to_last(x)))), [0, 1, 3, 2]))


def read_between(bb, x):
    made = bb.emit(R.exp(bb.emit(to_last(x))))
    return bb.emit(to_first(made)), bb.emit(R.sum(made))


def returned(bb, x):
    made = bb.emit(R.exp(bb.emit(to_last(x))))
    return made, bb.emit(to_first(made))


def no_opposite(bb, x):
    return bb.emit(to_first(bb.emit(R.exp(bb.emit(R.sqrt(x))))))


def mixed(bb, x):
    return bb.emit(to_first(bb.emit(R.nn.softmax(bb.emit(to_last(x)), -1))))


def broadcast(bb, x):
    rows = bb.emit(R.reshape(x, (2, 60)))
    return bb.emit(R.reshape(bb.emit(R.add(rows, const(RNG, 60))), IMAGE))


def shared_and_new(bb, x):
    moved = bb.emit(to_last(x))
    made = bb.emit(R.add(moved, bb.emit(R.nn.softmax(moved, -1))))
    return bb.emit(to_first(made))


def mixed_rows(bb, x):
    """Emit a product of rows, which is no product of channels."""
    y = bb.emit(R.matmul(bb.emit(R.permute_dims(x, [0, 1, 3, 2])), const(RNG, 4, 6)))
    return bb.emit(R.permute_dims(y, [0, 1, 3, 2]))


def many_weights(bb, x):
    y = bb.emit(R.matmul(bb.emit(to_last(x)), const(RNG, 2, 4, 3, 3)))
    return bb.emit(to_first(y))


STAYING = [
    mixed_rows,
    many_weights,
    another,
    read_between,
    returned,
    no_opposite,
    mixed,
    broadcast,
    shared_and_new,
]


@pytest.mark.parametrize("body", STAYING, ids=lambda body: body.__name__)
def test_transposes_without_an_opposite_stay(body):
    assert_unchanged(cancel_layouts, module(body, IMAGE))
