"""Models that no exporter writes: each is refused in one line."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from neocpu.frontend import load_model
from neocpu.schedules.errors import ModelError, NeoCPUError

KINDS = sorted(set(helper.get_all_tensor_dtypes()) - {TensorProto.STRING})


def model(tensor: onnx.TensorProto, *, as_node: bool = False) -> onnx.ModelProto:
    """Return a model with a tensor that a Cast reads, a weight or in a Constant node."""
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)]
    if as_node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "odd", [x], [y], [] if as_node else [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(NeoCPUError) as caught:
        load_model(proto)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("dims", [[4], [], [3, 3], [0], [-3], [2**40]])
def test_tensors_with_another_number_of_elements(kind, dims, raw, as_node):
    tensor = helper.make_tensor("w", kind, [9, 9], [1] * 81)
    if raw:
        tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), "w")
        tensor.data_type = kind
    del tensor.dims[:]
    tensor.dims.extend(dims)
    assert refusal(model(tensor, as_node=as_node)).startswith("the model is not a valid ONNX model")


@pytest.mark.parametrize("kind", [TensorProto.UNDEFINED, 99, -1])
@pytest.mark.parametrize("place", ["input", "weight", "output"])
def test_unknown_element_types(kind, place):
    proto = model(numpy_helper.from_array(np.zeros(3, np.float32), "w"))
    if place == "weight":
        proto.graph.initializer[0].data_type = kind
    else:
        value = (proto.graph.input if place == "input" else proto.graph.output)[0]
        value.type.tensor_type.elem_type = kind
    refusal(proto)


def test_a_function_defined_twice():
    text = """
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[2] x) => (float[2] y) { y = local.f (x) }
        <opset_import: ["": 17], domain: "local"> f (a) => (b) { b = Relu (a) }
    """
    proto = parser.parse_model(text)
    proto.functions.append(proto.functions[0])
    assert "local::f" in refusal(proto)


def test_the_errors_are_the_models():
    with pytest.raises(ModelError):
        load_model(model(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])))
