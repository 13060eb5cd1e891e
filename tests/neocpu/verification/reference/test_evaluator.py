"""The reference's own loop drops only unneeded values, and keeps the requested ones."""

import numpy as np
import pytest
from onnx import numpy_helper
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


SIZE = f"float[1, {KEEP_BYTES}]"
NETWORKS = {
    # Values and weights read late, twice, never; an output in the middle of the graph; an optional
    # input; an input, a weight, as outputs.
    "chain": (
        """top = Constant<value_float = 0.5>() a = Add(x, v)
        unread, half = Split<axis = 1, num_outputs = 2>(a) b = Clip(a, "", top) c = Mul(b, b)
        d = Add(c, v) e = Add(d, a)""",
        ["b", "e", "x", "w"],
    ),
    # The branches read a weight and a value of the graph around them.
    "branches": (
        f"""a = Relu(x) s = ReduceSum<keepdims = 0>(x) zero = Constant<value_float = 0.0>()
        c = Greater(s, zero) y = If(c) <then_branch = t () => ({SIZE} p) {{ p = Add(a, v) }},
            else_branch = e () => ({SIZE} q) {{ q = Add(a, w) }}>""",
        ["y"],
    ),
}


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
    net = model("dead = Reshape(x, shape) dead_too = Relu(dead) y = Relu(x)", ["y"])
    net.graph.initializer.append(numpy_helper.from_array(np.array([7, 7, 7]), "shape"))
    result = evaluate(net, {"x": -np.ones(SHAPE, np.float32)}, [])
    np.testing.assert_array_equal(result["y"], np.zeros(SHAPE))


def test_a_weight_is_read_when_it_is_needed(monkeypatch):
    real, read = evaluator.array_of, []

    def array_of(tensor):
        read.append(tensor.name)
        return real(tensor)

    monkeypatch.setattr(evaluator, "array_of", array_of)
    net = model("y = Add(x, v)", ["y"])
    evaluate(net, {"x": np.zeros(SHAPE, np.float32)}, [])
    assert read == ["v"]
