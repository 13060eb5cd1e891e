"""Constants without copies, use counts, and the rewriting walk."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import const, module, names
from tvm import relax

from neocpu.ir.constants import CONSTANT_ALIGNMENT, constant_value, make_const
from neocpu.ir.expressions import dtype_of, is_op, static_shape
from neocpu.ir.rewriting import rewrite_function
from neocpu.ir.uses import bindings, consumers, count_uses
from neocpu.runtime.aligned_memory import aligned_empty

R = relax.op
SHAPE = (2, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1, 7, 1, 1)])
def test_constant_round_trip(dtype, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    constant = make_const(array)
    assert dtype_of(constant) == dtype
    assert static_shape(constant) == shape
    np.testing.assert_array_equal(constant_value(constant), array)


def test_an_aligned_array_is_wrapped_and_others_are_copied():
    array = aligned_empty((4, 8), "float32")
    array[...] = 1
    assert np.shares_memory(constant_value(make_const(array)), array)
    for other in (
        array[:, 1:],
        array.T,
        array[1:].view()[:, :3],
        np.broadcast_to(array[0], (5, 8)),
    ):
        value = constant_value(make_const(other))
        np.testing.assert_array_equal(value, other)
        assert not np.shares_memory(value, array)
        assert value.ctypes.data % CONSTANT_ALIGNMENT == 0


def test_a_constant_s_value_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        constant_value(make_const(np.ones(3, "float32")))[0] = 2


def test_other_expressions_have_no_constant_value():
    assert constant_value(relax.Var("x", relax.TensorType(SHAPE, "float32"))) is None
    assert constant_value(relax.ShapeExpr([1, 2])) is None


def test_symbolic_and_unknown_shapes_are_not_static():
    n = tvm.tirx.Var("n", "int64")
    assert static_shape(relax.Var("x", relax.TensorType((n, 3), "float32"))) is None
    assert static_shape(relax.Var("x", relax.TensorType(None, "float32", ndim=2))) is None


def diamond(bb, x):
    y = bb.emit(R.exp(x))
    bb.emit(R.abs(y))
    return bb.emit(R.concat([y, bb.emit(R.add(y, x))], 0))


def test_uses_count_live_reads_and_consumers_list_all():
    func = module(diamond, SHAPE)["main"]
    x = func.params[0]
    y, dead, total, *_ = (binding.var for binding in bindings(func))
    uses = count_uses(func)
    assert (uses[x], uses[y], uses[total]) == (2, 2, 1)
    assert dead not in uses
    assert len(consumers(func)[y]) == 3
    assert consumers(func)[dead] == []


def test_rewriting_substitutes_and_drops_what_is_dead():
    def rule(expr, rewrite):
        return expr.args[0] if is_op(expr, "relax.exp") else None

    before = module(diamond, SHAPE)
    after = tvm.IRModule({"main": rewrite_function(before["main"], rule)})
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(
        after, module(lambda bb, x: bb.emit(R.concat([x, bb.emit(R.add(x, x))], 0)), SHAPE)
    )


def test_replacements_are_rewritten_again():
    def rule(expr, rewrite):
        if is_op(expr, "relax.exp"):
            return R.negative(rewrite.emit(R.sin(expr.args[0])))
        if is_op(expr, "relax.negative"):
            return R.abs(expr.args[0])
        return R.cos(expr.args[0]) if is_op(expr, "relax.sin") else None

    func = rewrite_function(module(lambda bb, x: bb.emit(R.exp(x)), SHAPE)["main"], rule)
    assert names(tvm.IRModule({"main": func})) == ["cos", "abs"]


def test_a_rule_sees_rewritten_definitions_and_single_uses():
    seen = []

    def rule(expr, rewrite):
        if is_op(expr, "relax.exp"):
            return R.sin(expr.args[0])
        if is_op(expr, "relax.add"):
            seen.append(
                (rewrite.definition(expr.args[0]).op.name, rewrite.sole_definition(expr.args[0]))
            )
        return None

    rewrite_function(module(diamond, SHAPE)["main"], rule)
    assert seen == [("relax.sin", None)]


def test_a_sharper_type_is_carried_on():
    def body(bb, x, shape):
        return bb.emit(R.exp(bb.emit(R.reshape(x, shape))))

    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            shape = bb.emit(R.tensor_to_shape(relax.const(np.array([3, 2]), "int64")))
            output = bb.emit_output(body(bb, x, shape))
        bb.emit_func_output(output)

    def rule(expr, rewrite):
        return relax.ShapeExpr([3, 2]) if is_op(expr, "relax.tensor_to_shape") else None

    func = rewrite_function(bb.finalize()["main"], rule)
    relax.analysis.well_formed(tvm.IRModule({"main": func}))
    assert [static_shape(binding.var) for binding in bindings(func)][:2] == [(3, 2), (3, 2)]


def test_op_counts():
    rng = np.random.default_rng(0)
    mod = module(lambda bb, x: bb.emit(R.add(bb.emit(R.add(x, x)), const(rng, 3))), SHAPE)
    assert op_counts(mod) == {"relax.add": 2}
