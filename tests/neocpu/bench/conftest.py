"""The toy model ``linear`` as ONNX, which is what its peers run."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="session")
def linear_onnx(linear, tmp_path_factory):
    """Path of ``y = relu(x @ w + b)`` with the weights of the artifact ``linear``."""
    weights = [numpy_helper.from_array(w, n) for w, n in zip(linear.weights, "wb", strict=True)]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 33))],
        weights,
    )
    path = tmp_path_factory.mktemp("linear-onnx") / "linear.onnx"
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture(scope="session")
def linear_inputs(linear):
    """Inputs of ``linear`` by name."""
    names = [spec.name for spec in linear.header.inputs]
    return dict(zip(names, linear.inputs(), strict=True))


@pytest.fixture
def inputs_file(tmp_path, linear_inputs):
    """File of the inputs of ``linear``."""
    from neocpu.bench.engines.engine_session import save_inputs

    path = tmp_path / "inputs.npz"
    save_inputs(path, linear_inputs)
    return path


@pytest.fixture(scope="session")
def wrong_onnx(linear_onnx, tmp_path_factory):
    """Path of a model with the signature of ``linear`` and other results."""
    model = onnx.load(linear_onnx)
    bias = numpy_helper.from_array(np.full(33, 7, np.float32), "b")
    model.graph.initializer[1].CopyFrom(bias)
    path = tmp_path_factory.mktemp("wrong-onnx") / "wrong.onnx"
    onnx.save(model, path)
    return path
