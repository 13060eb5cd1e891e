"""Equal expressions are computed once; different ones are not mixed up."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.redundancy.eliminate_common_subexpressions import (
    MAX_COMPARED_BYTES,
    eliminate_common_subexpressions,
)

R = relax.op
SHAPE = (1, 3, 8, 8)
RNG = np.random.default_rng(0)


def twice(first, second=None):
    """Return a body that adds two calls."""

    def body(bb, x):
        return bb.emit(R.add(bb.emit(first(x)), bb.emit((second or first)(x))))

    return body


@pytest.mark.parametrize(
    "call",
    [
        R.nn.relu,
        lambda x: R.nn.max_pool2d(x, (2, 2)),
        lambda x: R.add(x, relax.const(np.arange(3, dtype="float32").reshape(3, 1, 1))),
        lambda x: R.reshape(x, (3, 64)),
        lambda x: R.concat([x, x], 1),
        lambda x: R.clip(x, 0.0, 1.0),
    ],
)
def test_equal_calls_become_one(call):
    after = eliminate_common_subexpressions(module(twice(call), SHAPE))

    def expected(bb, x):
        y = bb.emit(call(x))
        return bb.emit(R.add(y, y))

    tvm.ir.assert_structural_equal(after, module(expected, SHAPE))


def test_a_large_constant_equals_only_itself():
    weight = const(RNG, 64, 3, 5, 5)
    assert np.from_dlpack(weight.value).nbytes > MAX_COMPARED_BYTES
    copy = relax.const(weight.value.numpy())
    shared = module(twice(lambda x: R.nn.conv2d(x, weight)), SHAPE)
    assert names(eliminate_common_subexpressions(shared)) == ["nn.conv2d", "add"]
    separate = module(
        twice(lambda x: R.nn.conv2d(x, weight), lambda x: R.nn.conv2d(x, copy)), SHAPE
    )
    assert eliminate_common_subexpressions(separate)["main"].same_as(separate["main"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (R.nn.relu, R.exp),
        (lambda x: R.nn.max_pool2d(x, (3, 3), 1, 1), lambda x: R.nn.avg_pool2d(x, (3, 3), 1, 1)),
        (
            lambda x: R.nn.avg_pool2d(x, (3, 3), 1, 1, count_include_pad=True),
            lambda x: R.nn.avg_pool2d(x, (3, 3), 1, 1, count_include_pad=False),
        ),
        (lambda x: R.permute_dims(x, [0, 1, 3, 2]), lambda x: R.permute_dims(x, [0, 1, 2, 3])),
        (lambda x: R.clip(x, 0.0, 1.0), lambda x: R.clip(x, 0.0, 2.0)),
        (lambda x: R.multiply(x, relax.const(1.0)), lambda x: R.multiply(x, relax.const(2.0))),
    ],
)
def test_different_calls_stay(first, second):
    assert_unchanged(eliminate_common_subexpressions, module(twice(first, second), SHAPE))


def test_whole_branches_collapse():
    def branch(bb, x):
        parts = bb.emit(R.split(x, 2, axis=2))
        return bb.emit(R.nn.relu(bb.emit(relax.TupleGetItem(parts, 1))))

    before = module(lambda bb, x: bb.emit(R.add(branch(bb, x), branch(bb, x))), SHAPE)
    assert names(eliminate_common_subexpressions(before)) == ["split", "nn.relu", "add"]


def test_equal_outputs_stay_outputs():
    before = module(lambda bb, x: (bb.emit(R.exp(x)), bb.emit(R.exp(x))), SHAPE)
    after = eliminate_common_subexpressions(before)
    assert names(after) == ["exp"]
    tvm.ir.assert_structural_equal(before["main"].ret_ty, after["main"].ret_ty)
