"""The reference's own loop drops only unneeded values, and keeps the requested ones."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from neocpu.frontend.onnx_graph.weightless_model import KEEP_BYTES
from neocpu.verification.reference import evaluator
from neocpu.verification.reference.evaluator import evaluate
from tests.neocpu.frontend.onnx_models import onnx_model

SHAPE = [1, KEEP_BYTES]  # a weight of this many floats is taken out of the skeleton


def model(nodes, outputs):
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=SHAPE).astype(np.float32) for name in "vw"}
    return onnx_model(nodes, {"x": SHAPE}, dict.fromkeys(outputs, SHAPE), weights)


def branches():
    """An If whose branches read a weight and a value of the graph around them."""
    result = [helper.make_tensor_value_info("r", TensorProto.FLOAT, SHAPE)]
    body = [
        helper.make_graph([helper.make_node("Add", pair, ["r"])], "branch", [], result)
        for pair in (["a", "v"], ["a", "w"])
    ]
    total = helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)
    zero = helper.make_node("Constant", [], ["zero"], value_float=0.0)
    positive = helper.make_node("Greater", ["s", "zero"], ["c"])
    choose = helper.make_node("If", ["c"], ["y"], then_branch=body[0], else_branch=body[1])
    return [helper.make_node("Relu", ["x"], ["a"]), total, zero, positive, choose]


NETWORKS = {
    # Values and weights read late, twice, never; an output in the middle of the graph; an optional
    # input; an input, a weight, as outputs.
    "chain": (
        [
            helper.make_node("Add", ["x", "v"], ["a"]),
            helper.make_node("Split", ["a"], ["unread", "half"], axis=1, num_outputs=2),
            helper.make_node("Clip", ["a", "", "top"], ["b"]),
            helper.make_node("Mul", ["b", "b"], ["c"]),
            helper.make_node("Add", ["c", "v"], ["d"]),
            helper.make_node("Add", ["d", "a"], ["e"]),
        ],
        ["b", "e", "x", "w"],
    ),
    "branches": (branches(), ["y"]),
}
NETWORKS["chain"][0].insert(0, helper.make_node("Constant", [], ["top"], value_float=0.5))


@pytest.mark.parametrize("name", NETWORKS)
def test_like_the_evaluator(name):
    net = model(*NETWORKS[name])
    inputs = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    evaluator = ReferenceEvaluator(net)
    expected = dict(zip(evaluator.output_names, evaluator.run(None, inputs), strict=True))
    actual = evaluate(net, inputs, [])
    assert list(actual) == list(expected)
    for output, want in expected.items():
        np.testing.assert_array_equal(actual[output], want)


def test_nodes_that_no_output_needs_are_not_run():
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["dead"]),
        helper.make_node("Relu", ["dead"], ["dead_too"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    net = model(nodes, ["y"])
    net.graph.initializer.append(numpy_helper.from_array(np.array([7, 7, 7]), "shape"))
    result = evaluate(net, {"x": -np.ones(SHAPE, np.float32)}, [])
    np.testing.assert_array_equal(result["y"], np.zeros(SHAPE))


def test_a_weight_is_read_when_it_is_needed(monkeypatch):
    real, read = evaluator.array_of, []

    def array_of(tensor):
        read.append(tensor.name)
        return real(tensor)

    monkeypatch.setattr(evaluator, "array_of", array_of)
    net = model([helper.make_node("Add", ["x", "v"], ["y"])], ["y"])
    evaluate(net, {"x": np.zeros(SHAPE, np.float32)}, [])
    assert read == ["v"]
