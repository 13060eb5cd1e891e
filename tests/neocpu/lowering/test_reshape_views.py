"""Reshapes of results, and consecutive ones in a fused function, are views as a single one is."""

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from relax_modules import assert_same_results, module
from tvm import relax
from tvm.ir import Call

import neocpu
from neocpu.building.pipeline import call_kernels
from neocpu.ir.uses import bindings
from neocpu.lowering.reshape_views import view_results


def model_of(nodes, shape, outputs, constants):
    graph = helper.make_graph(
        nodes,
        "reshapes",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("rows", TensorProto.INT64, [12]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
        [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("reshapes", [1, 2, 3])
def test_nothing_is_copied_around_a_kernel(reshapes):
    """A kernel of flat tensors takes rows, so that the model's reshape is followed by another."""
    shapes = {"a": [12, 4, 16], "b": [4, 3, 64], "c": [12, 64]}
    chosen = [*list(shapes)[: reshapes - 1], "c"]
    nodes, last = [], "x"
    for number, name in enumerate(chosen):
        nodes.append(helper.make_node("Reshape", [last, name], [f"r{number}"]))
        last = f"r{number}"
    nodes.append(helper.make_node("Gather", [last, "rows"], ["taken"], axis=0))
    nodes.append(helper.make_node("Reshape", ["taken", "a"], ["y"]))
    model = model_of(nodes, [2, 6, 64], [12, 4, 16], shapes)
    onnx.checker.check_model(model)
    data = np.random.default_rng(0)
    x, rows = data.random((2, 6, 64), np.float32), data.permutation(12)
    with neocpu.compile(model) as compiled:
        kernels = [kernel for kernel, _ in compiled.header.calls]
        assert not any("reshape" in kernel for kernel in kernels), kernels
        (found,) = compiled.module().run({"x": x, "rows": rows}).values()
    np.testing.assert_array_equal(found, x.reshape(12, 4, 16)[rows])


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
