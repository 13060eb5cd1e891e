"""Consecutive reshapes within a fused function are views, as a single one is."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu


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
