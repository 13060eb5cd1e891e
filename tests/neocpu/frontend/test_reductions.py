"""Every reduction over every choice of axes, in every form, against ONNX Runtime."""

from __future__ import annotations

import itertools

import needs
import numpy as np
import pytest
from onnx import helper

import neocpu
from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    check,
    ints,
    make_model,
    node_of,
    random,
    run_imported,
)

OPERATORS = [f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min")]
OPERATORS += ["ReduceProd", "ReduceSum", "ReduceSumSquare"]
AXES = [None, [], [0], [-1], [1, -1], [0, 1, 2], [2, 0]]


def reductions(op: str, x: np.ndarray, opset: int):
    """Return a model with an output for each choice of axes and attributes."""
    nodes, constants = [], {}
    for number, (axes, keep, noop) in enumerate(itertools.product(AXES, (0, 1), (0, 1))):
        inputs, name = ["x"], f"axes{number}"
        if axes is not None:
            constants[name] = ints(*axes)
            inputs.append(name)
        flags = {"keepdims": keep, "noop_with_empty_axes": noop}
        nodes.append(helper.make_node(op, inputs, [f"y{number}"], **flags))
    outputs = [node.output[0] for node in nodes]
    return make_model(nodes, {"x": x}, constants, outputs, opset)


@pytest.mark.parametrize("op", OPERATORS)
@needs.one_in(2)
def test_floats(op):
    x = np.abs(random(3, 4, 5)) + np.float32(0.1) if op == "ReduceLogSum" else random(3, 4, 5)
    assert_matches_onnxruntime(reductions(op, x, 18), {"x": x})
    if op != "ReduceSum":  # an attribute until opset 17
        check(op, x=x, opset=11, axes=[1, 2], keepdims=1)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_booleans(op):
    x = random(3, 4, 5) > 0.5
    assert_matches_onnxruntime(reductions(op, x, 20), {"x": x})


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(op, dtype):
    x = (random(3, 4, 5) * 2).astype(dtype)
    assert_matches_onnxruntime(reductions(op, x, 18), {"x": x})


def test_the_logarithm_of_infinite_sums():
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [-np.inf, 2], [700, 700]], np.float32)
    node = node_of("ReduceLogSumExp", "x axes", keepdims=0)
    model = make_model([node], {"x": x}, {"axes": ints(1)})
    _, _, (y,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(y, [np.inf, -np.inf, 2, 700 + np.log(2)], rtol=1e-6)


@pytest.mark.parametrize("shape", [(16, 7, 7, 6), (64,), (3, 5, 32)])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_reductions_to_one_number(op, shape):
    """TVM cannot compute these by a vector of partial results."""
    node = node_of(op, "x", keepdims=0)
    with neocpu.compile(make_model([node], {"x": random(*shape)}), threads=2) as compiled:
        assert compiled.verification is not None
