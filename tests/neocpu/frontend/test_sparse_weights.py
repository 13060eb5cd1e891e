"""Sparsely stored weights are read as the dense weights they represent."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError
from neocpu.frontend import sparse_weights
from neocpu.frontend.load import load_model
from neocpu.frontend.source import read_model
from tests.neocpu.frontend.onnx_models import onnx_model

SHAPE = (4, 3, 3, 3)
PLACES = [0, 5, 70, 107]
DENSE = np.zeros(SHAPE, np.float32)
DENSE.flat[PLACES] = [1, 2, 3, 4]


def sparse(
    values=(1, 2, 3, 4), places=PLACES, shape=SHAPE, dtype="float32"
) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.array(values, dtype), "w"),
        indices=numpy_helper.from_array(np.array(places, np.int64)),
        dims=shape,
    )


def model(weights: onnx.SparseTensorProto, place: str = "initializer") -> onnx.ModelProto:
    """Return a convolution by sparse weights: an initialiser, a Constant, or one in a branch."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    if place != "initializer":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=weights))
    ends = {"x": [1, 3, 8, 8]}, {"y": [1, 4, 6, 6]}
    made = onnx_model(nodes, *ends)
    if place == "initializer":
        made.graph.sparse_initializer.append(weights)
    if place == "branch":
        inner = helper.make_graph(nodes, "b", [], made.graph.output)
        choose = helper.make_node("If", ["chosen"], ["y"], then_branch=inner, else_branch=inner)
        made = onnx_model([choose], *ends, {"chosen": np.array(True)})
    return made


@pytest.mark.parametrize("place", ["initializer", "constant", "branch"])
def test_sparse_weights_compile(place):
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    outputs = []
    ordinary = model(sparse())
    del ordinary.graph.sparse_initializer[:]
    ordinary.graph.initializer.append(numpy_helper.from_array(DENSE, "w"))
    for each in (model(sparse(), place), ordinary):
        with neocpu.compile(each, threads=1) as compiled, compiled.module() as module:
            assert compiled.plan.verification.oracle_reason == ""
            outputs.append(module.run({"x": x})["y"])
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("rows", [False, True])
def test_values_are_put_in_their_places(dtype, rows):
    places = np.transpose(np.unravel_index(PLACES, SHAPE)) if rows else PLACES
    given = read_model(model(sparse(places=places, dtype=dtype)))
    assert not given.graph.sparse_initializer
    (weight,) = given.graph.initializer
    assert weight.name == "w"
    np.testing.assert_array_equal(numpy_helper.to_array(weight), DENSE.astype(dtype))


def test_a_tensor_without_a_value_is_zero():
    (weight,) = read_model(model(sparse([], []))).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), np.zeros(SHAPE))


def test_attributes_of_other_operators_become_arrays():
    node = helper.make_node("Odd", ["x"], ["y"], domain="own", one=sparse(), some=[sparse()] * 2)
    proto = model(sparse())
    proto.graph.node[0].CopyFrom(node)
    one, some = read_model(proto).graph.node[0].attribute
    np.testing.assert_array_equal(numpy_helper.to_array(one.t), DENSE)
    assert (one.type, some.type) == (onnx.AttributeProto.TENSOR, onnx.AttributeProto.TENSORS)
    assert len(some.tensors) == 2


def test_external_values(tmp_path):
    weights = sparse()
    (tmp_path / "w.bin").write_bytes(weights.values.raw_data)
    weights.values.ClearField("raw_data")
    weights.values.data_location = TensorProto.EXTERNAL
    weights.values.external_data.add(key="location", value="w.bin")
    (tmp_path / "net.onnx").write_bytes(model(weights).SerializeToString())
    (weight,) = read_model(tmp_path / "net.onnx").graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), DENSE)
    with pytest.raises(ModelError, match="in external files"):
        read_model(model(weights))


HUGE = (10**6, 10**6)


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [
        (sparse(shape=HUGE), UnsupportedError, "takes 4000000000000 bytes when it is dense"),
        (
            sparse(shape=(2**40,) * 4),
            UnsupportedError,
            "takes more than 10.15 bytes when it is dense",
        ),
        (sparse(shape=(1,) * 40), UnsupportedError, "of 40 dimensions"),
        (sparse(places=[0, 5, 70, 108]), ModelError, "an index outside its shape 4x3x3x3"),
        (sparse(places=[-1, 5, 70, 107]), ModelError, "an index outside its shape 4x3x3x3"),
        (sparse(places=[[0, 0, 0, 3]] * 4), ModelError, "an index outside its shape 4x3x3x3"),
        (sparse(places=[0, 5, 5, 107]), ModelError, "indices that do not rise"),
        (sparse(places=[5, 0, 70, 107]), ModelError, "indices that do not rise"),
        (sparse(places=[0, 5, 70]), ModelError, "do not fit its 4 dimensions"),
        (sparse(places=[[0, 0]] * 4), ModelError, "do not fit its 4 dimensions"),
        (sparse(shape=(3, -3)), ModelError, r"has the shape \[3, -3\]"),
        (sparse(shape=()), ModelError, r"has the shape \[\]"),
        (onnx.SparseTensorProto(dims=[3]), ModelError, "values, a tensor that has the unknown"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_malformed_sparse_tensors_are_named(weights, error, said, place):
    with pytest.raises(error, match=said) as refused:
        load_model(model(weights, place))
    assert "\n" not in str(refused.value)


def test_indices_and_values_of_other_types():
    for change in ("indices", "values", "strings"):
        weights = sparse()
        if change == "indices":
            weights.indices.CopyFrom(numpy_helper.from_array(np.array(PLACES, np.int32)))
        elif change == "values":
            weights.values.raw_data = b""
        else:
            weights.values.CopyFrom(helper.make_tensor("w", TensorProto.STRING, [4], [b"a"] * 4))
        with pytest.raises(NeoCPUError, match="sparse tensor 'w' h"):
            load_model(model(weights))


def test_the_bytes_of_all_sparse_weights_have_a_limit(monkeypatch):
    """Each may be small, and there may be any number of them."""
    monkeypatch.setattr(sparse_weights, "MAX_BYTES", DENSE.nbytes)
    proto = model(sparse())
    read_model(proto)
    proto.graph.node.add().CopyFrom(helper.make_node("Constant", [], ["c"], sparse_value=sparse()))
    with pytest.raises(UnsupportedError, match="'c' of shape 4x3x3x3 takes 432 bytes when it is"):
        read_model(proto)
