"""Weights that are stored sparsely are those that they stand for."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.load import load_model

SHAPE = (4, 3, 3, 3)
VALUES = np.array([1.5, -2, 3], np.float32)
PLACES = np.array([0, 30, 107], np.int64)
DENSE = np.zeros(SHAPE, np.float32)
DENSE.reshape(-1)[PLACES] = VALUES


def convolution(indices, values=VALUES, shape=SHAPE):
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
    )
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values, "w"), numpy_helper.from_array(indices, "i"), shape
    )
    graph.sparse_initializer.append(sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    "indices", [PLACES, np.stack(np.unravel_index(PLACES, SHAPE), axis=1)], ids=["flat", "rows"]
)
def test_a_convolution_by_sparse_weights(indices):
    (found,) = (
        numpy_helper.to_array(each)
        for each in load_model(convolution(indices)).original.graph.initializer
    )
    np.testing.assert_array_equal(found, DENSE)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    dense = convolution(PLACES)
    del dense.graph.sparse_initializer[:]
    dense.graph.initializer.append(numpy_helper.from_array(DENSE, "w"))
    outputs = []
    for model in (convolution(indices), dense):
        with neocpu.compile(model) as compiled, compiled.module() as module:
            outputs.append(module(x))
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(
    ("indices", "values", "words"),
    [
        (PLACES + 1, VALUES, "has an index outside its shape 4x3x3x3"),
        (PLACES - 1, VALUES, "has an index outside its shape 4x3x3x3"),
        (PLACES[:2], VALUES, "has indices of shape (2,) for 3 values"),
        (PLACES.astype(np.int32), VALUES, "has indices of int32"),
        (PLACES, VALUES.reshape(3, 1), "has indices of shape (3,) for 3 values"),
    ],
)
def test_indices_fit_their_values(indices, values, words):
    with pytest.raises(ModelError) as caught:
        load_model(convolution(indices, values))
    assert f"sparse tensor 'w' {words}" in str(caught.value)


def test_what_is_too_large_when_it_is_dense_is_refused():
    with pytest.raises(UnsupportedError, match="takes 36000000000000 bytes when it is dense"):
        load_model(convolution(PLACES, shape=(10**6, 10**6, 3, 3)))


@pytest.mark.parametrize(
    ("key", "value"), [("location", "w.bin\0x"), ("offset", "-4"), ("length", "x")]
)
def test_a_place_that_is_none_is_refused(key, value, tmp_path):
    model = convolution(PLACES)
    del model.graph.sparse_initializer[:]
    tensor = numpy_helper.from_array(DENSE, "w")
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for name, text in {"location": "w.bin", key: value}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = name, text
    model.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path / "m.onnx")
    assert f"keeps tensor 'w' at the {key} '" in str(caught.value)
    assert onnx.load(tmp_path / "m.onnx", load_external_data=False)
