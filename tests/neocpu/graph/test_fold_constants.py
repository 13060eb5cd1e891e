"""Constant folding agrees with TVM's own results of the same operators."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import assert_unchanged, const, module, run
from tvm import relax

from neocpu.graph.folding.fold_constants import NUMPY_OPS, fold_constants
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import op_name
from neocpu.ir.uses import bindings

R = relax.op
RNG = np.random.default_rng(0)
A = const(RNG, 3, 5, 7, low=0.5)
B = const(RNG, 3, 5, 7, low=0.5)
M = const(RNG, 131, 259)
I = relax.const(np.array([[-7, 7], [5, -3]]), "int32")  # noqa: E741
J = relax.const(np.array([[2, -2], [3, 2]]), "int32")
MASK = relax.const(np.array([[True, False], [False, True]]))

CASES = {
    **{
        name: getattr(R, name)(A)
        for name in ("exp", "sqrt", "rsqrt", "negative", "log", "tanh", "sigmoid", "abs")
    },
    **{
        name: getattr(R, name)(A, B)
        for name in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum")
    },
    "integer divide truncates": R.divide(I, J),
    "comparison": R.less(A, B),
    "logical": R.logical_not(MASK),
    "where": R.where(MASK, I, J),
    "broadcasting": R.add(A, const(RNG, 7)),
    "reshape": R.reshape(A, (15, 7)),
    "flatten": R.flatten(A),
    "permute_dims": R.permute_dims(A, [2, 0, 1]),
    "permute_dims reversed": R.permute_dims(A),
    "transpose of a matrix in blocks": R.permute_dims(M, [1, 0]),
    "expand_dims": R.expand_dims(A, [0, 4]),
    "squeeze": R.squeeze(const(RNG, 1, 3, 1), [0]),
    "squeeze all": R.squeeze(const(RNG, 1, 3, 1)),
    "concat": R.concat([A, B], 1),
    "stack": R.stack([A, B], 2),
    "broadcast_to": R.broadcast_to(const(RNG, 1, 5, 1), (3, 5, 7)),
    "astype": R.astype(A, "int32"),
    "mean": R.mean(A, [0, 2], keepdims=True),
    "sum of all": R.sum(A),
    "max": R.max(A, [1]),
    "variance": R.variance(A, [1]),
    "strided_slice": R.strided_slice(A, [1, 2], [1, 0], [4, 7], [1, 3]),
    "strided_slice past the end": R.strided_slice(A, [2], [2], [2**31 - 1]),
    "take": R.take(A, relax.const(np.array([2, 0]), "int64"), axis=0),
    "take a scalar": R.take(A, relax.const(1, "int64"), axis=2),
    "clip": R.clip(A, 0.6, 0.8),
    "tile": R.tile(A, (1, 2, 1)),
    "repeat": R.repeat(A, 2, 1),
    "flip": R.flip(A, 1),
    "full": R.full((2, 3), relax.const(1.5), "float32"),
    "zeros": R.zeros((2, 3), "int64"),
    "ones": R.ones((2, 3), "float32"),
    "arange": R.arange(1, 9, 3, "int64"),
    "cumsum": R.cumsum(A, 1),
    "exclusive cumsum": R.cumsum(A, 1, exclusive=True),
    "matmul": R.matmul(const(RNG, 3, 5), const(RNG, 5, 2)),
    "relu": R.nn.relu(const(RNG, 3, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_folded_values_agree_with_tvm(name):
    before = module(lambda bb: bb.emit(CASES[name]))
    after = fold_constants(before)
    relax.analysis.well_formed(after)
    assert op_counts(after) == {}
    tvm.ir.assert_structural_equal(before["main"].ret_ty, after["main"].ret_ty)
    (expected,) = run(before)
    (actual,) = (constant_value(binding.value) for binding in bindings(after["main"]))
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("sections", [2, 3, [1, 4]])
def test_split_becomes_one_constant_per_section(sections):
    def body(bb):
        parts = bb.emit(R.split(A, sections, axis=1))
        return bb.emit(relax.TupleGetItem(parts, 0)), bb.emit(relax.TupleGetItem(parts, 1))

    before = module(body)
    after = fold_constants(before)
    assert op_counts(after) == {}
    for expected, actual in zip(run(before), run(after), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_chain_up_to_a_variable_is_folded():
    weight = const(RNG, 4, 3)

    def before(bb, x):
        transposed = bb.emit(R.permute_dims(bb.emit(R.negative(weight)), [1, 0]))
        return bb.emit(R.matmul(x, transposed))

    def expected(bb, x):
        return bb.emit(R.matmul(x, relax.const(-weight.value.numpy().T)))

    after = fold_constants(module(before, (2, 3)))
    tvm.ir.assert_structural_equal(after, module(expected, (2, 3)))


def test_shape_arithmetic_becomes_a_static_reshape():
    def before(bb, x):
        extents = bb.emit(R.shape_to_tensor(bb.emit(R.shape_of(x))))
        batch = bb.emit(R.strided_slice(extents, [0], [0], [1]))
        shape = bb.emit(R.concat([batch, relax.const(np.array([-1]), "int64")], 0))
        rest = relax.const(np.array([12]), "int64")
        shape = bb.emit(R.concat([bb.emit(R.strided_slice(shape, [0], [0], [1])), rest], 0))
        target = bb.emit(R.tensor_to_shape(shape))
        target = bb.match_cast(target, relax.ShapeType([5, 12]))
        return bb.emit(R.reshape(x, target))

    after = fold_constants(module(before, (5, 3, 4)))
    assert op_counts(after) == {"relax.reshape": 1}


def test_unknown_operators_and_variables_stay():
    def body(bb, x):
        image = bb.emit(R.nn.max_pool2d(const(RNG, 1, 1, 4, 4), (2, 2)))
        return bb.emit(R.add(x, image))

    assert_unchanged(fold_constants, module(body, (1, 1, 3, 3)))


def test_a_reshaped_constant_shares_its_buffer():
    before = module(lambda bb: bb.emit(R.reshape(M, (259, 131))))
    after = fold_constants(before)
    (value,) = (constant_value(binding.value) for binding in bindings(after["main"]))
    assert np.shares_memory(value, constant_value(M))


def test_every_table_entry_is_an_operator():
    for name in NUMPY_OPS:
        assert op_name(tvm.ir.Call(tvm.ir.Op.get(name), [])) == name
