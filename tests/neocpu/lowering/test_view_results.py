"""Results are bound within the dataflow block, where reshapes become views."""

import tvm
from relax_modules import assert_same_results, module
from tvm import relax
from tvm.ir import Call

from neocpu.building.pipeline import call_kernels
from neocpu.ir.uses import bindings
from neocpu.lowering.view_results import view_results

SHAPE = (2, 3, 4)


def several():
    """Two equal views of one tensor, one of the input, and a result that is read again."""
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.exp(x))
            flat = bb.emit_output(relax.op.reshape(y, (24,)))
            again = bb.emit_output(relax.op.reshape(y, (24,)))
            late = bb.emit_output(relax.op.tanh(flat))
            given = bb.emit_output(relax.op.reshape(x, (6, 4)))
        bb.emit_func_output(relax.Tuple([flat, again, late, given]))
    return bb.finalize()


def test_outputs_are_other_names_of_what_the_block_binds():
    before = module(lambda bb, x: relax.op.reshape(x, (24,)), SHAPE)
    after = view_results(before)
    *_, inner, outer = bindings(after["main"])
    assert isinstance(inner.var, relax.DataflowVar)
    assert isinstance(inner.value, Call)
    assert not isinstance(outer.var, relax.DataflowVar)
    assert outer.value.same_as(inner.var)
    relax.analysis.well_formed(after)


def test_results_are_the_same():
    before = several()
    assert_same_results(before, view_results(before))


def test_no_kernel_copies_a_result():
    lowered = relax.transform.LegalizeOps()(several())
    called = [
        binding.value.op.name_hint
        for binding in bindings(call_kernels(lowered)["main"])
        if isinstance(binding.value, Call) and isinstance(binding.value.op, tvm.ir.GlobalVar)
    ]
    assert sorted(called) == ["tir_exp", "tir_tanh"]
