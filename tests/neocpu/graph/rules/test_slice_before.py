"""A slice of a result moves to the operands if that means less work."""

import numpy as np
import pytest
from relax_modules import applied, assert_unchanged, calls, const, module, names
from tvm import relax

from neocpu.graph.reordering.slice_before import slice_before
from neocpu.graph.simplify import simplify

R = relax.op
TOKENS, IMAGE = (2, 5, 6), (2, 6, 4, 5)
RNG = np.random.default_rng(0)


def first(x):
    """The first token."""
    return R.strided_slice(x, [1], [0], [1])


def vectors(*shape):
    return const(RNG, *shape)


MOVED = {
    "unary": (lambda bb, x: R.exp(x), TOKENS, first),
    "broadcast constant": (lambda bb, x: R.add(x, vectors(5, 1)), TOKENS, first),
    "softmax": (lambda bb, x: R.nn.softmax(x, -1), TOKENS, first),
    "layer norm": (lambda bb, x: R.nn.layer_norm(x, vectors(6), vectors(6), [-1]), TOKENS, first),
    "rows": (lambda bb, x: R.matmul(x, vectors(6, 7)), TOKENS, first),
    "columns": (
        lambda bb, x: R.matmul(x, vectors(6, 7)),
        TOKENS,
        lambda x: R.strided_slice(x, [-1], [1], [7], [3]),
    ),
    "transpose": (
        lambda bb, x: R.permute_dims(x, [2, 0, 1]),
        TOKENS,
        lambda x: R.strided_slice(x, [0], [-2], [6]),
    ),
    "reshape": (lambda bb, x: R.reshape(x, (2, 5, 2, 3)), TOKENS, first),
    "sum": (lambda bb, x: R.sum(x, -1, keepdims=True), TOKENS, first),
    "pixels": (
        lambda bb, x: R.nn.conv2d(x, vectors(3, 6, 1, 1)),
        IMAGE,
        lambda x: R.strided_slice(x, [2, 3], [1, 0], [4, 5], [1, 2]),
    ),
    "filters": (
        lambda bb, x: R.nn.conv2d(x, vectors(4, 6, 3, 3), padding=1, strides=2),
        IMAGE,
        lambda x: R.strided_slice(x, [1], [1], [3]),
    ),
    "pooled channels": (
        lambda bb, x: R.nn.max_pool2d(x, (3, 2), padding=1),
        IMAGE,
        lambda x: R.strided_slice(x, [1], [3], [5]),
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_slices_move(name):
    op, shape, cut = MOVED[name]
    after = applied(slice_before, lambda bb, x: bb.emit(cut(bb.emit(op(bb, x)))), shape)
    made = names(after)
    if name in ("columns", "filters"):
        assert "strided_slice" not in made
    else:
        assert made[0] == "strided_slice"
        assert len(made) == 2


def twice(op, cut):
    """The result has another reader."""

    def body(bb, x):
        made = bb.emit(op(x))
        return bb.emit(cut(made)), bb.emit(R.sum(made))

    return body


def returned(bb, x):
    made = bb.emit(R.exp(x))
    return made, bb.emit(first(made))


def after(op, cut):
    return lambda bb, x: bb.emit(cut(bb.emit(op(x))))


def epilogue(bb, x):
    """A bias that the convolution adds while it stores."""
    made = bb.emit(R.nn.conv2d(x, vectors(3, 6, 3, 3)))
    biased = bb.emit(R.nn.relu(bb.emit(R.add(made, vectors(1, 3, 1, 1)))))
    return bb.emit(R.strided_slice(biased, [2], [0], [1]))


STAYING = {
    "read twice": (twice(R.exp, first), TOKENS),
    "returned": (returned, TOKENS),
    "along softmax": (after(lambda x: R.nn.softmax(x, 1), first), TOKENS),
    "along a norm": (
        after(lambda x: R.nn.layer_norm(x, vectors(5, 6), vectors(5, 6), [1, 2]), first),
        TOKENS,
    ),
    "backwards": (after(R.exp, lambda x: R.strided_slice(x, [1], [4], [-6], [-1])), TOKENS),
    "split axis": (after(lambda x: R.reshape(x, (2, 30)), first), TOKENS),
    "rows of a 3x3 convolution": (
        after(
            lambda x: R.nn.conv2d(x, vectors(3, 6, 3, 3)),
            lambda x: R.strided_slice(x, [2], [0], [1]),
        ),
        IMAGE,
    ),
    "channels of groups": (
        after(
            lambda x: R.nn.conv2d(x, vectors(6, 3, 1, 1), groups=2),
            lambda x: R.strided_slice(x, [1], [0], [3]),
        ),
        IMAGE,
    ),
    "epilogue": (epilogue, IMAGE),
}


@pytest.mark.parametrize("name", STAYING)
def test_slices_stay(name):
    body, shape = STAYING[name]
    assert_unchanged(slice_before, module(body, shape))


def block(bb, x):
    """The end of a vision transformer's block: attention's product, residuals and an MLP."""
    rows = bb.emit(R.matmul(bb.emit(R.nn.softmax(bb.emit(R.matmul(x, vectors(6, 5))))), x))
    summed = bb.emit(R.add(x, rows))
    normal = bb.emit(R.nn.layer_norm(summed, vectors(6), vectors(6), [-1]))
    hidden = bb.emit(
        R.nn.gelu(bb.emit(R.add(bb.emit(R.matmul(normal, vectors(6, 9))), vectors(9))))
    )
    total = bb.emit(R.add(summed, bb.emit(R.matmul(hidden, vectors(9, 6)))))
    return bb.emit(R.reshape(bb.emit(first(total)), (2, 6)))


def test_the_end_of_a_transformer_computes_one_token():
    after = applied(simplify, block, TOKENS)
    assert names(after).count("strided_slice") == 1
    shapes = [tuple(map(int, call.ty.shape.values)) for call in calls(after)]
    assert all(shape[1] in (1, 6) for shape in shapes)


def test_a_slice_moves_in_front_of_hundreds_of_operators():
    def body(bb, x):
        for step in range(300):
            x = bb.emit((R.sigmoid, R.tanh)[step % 2](x))
        return bb.emit(first(x))

    after = simplify(module(body, TOKENS))
    assert names(after)[0] == "strided_slice"
    assert names(after).count("strided_slice") == 1
