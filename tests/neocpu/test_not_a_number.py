"""NaN and infinities stay where TVM's simplifier and its comparisons would lose them."""

import numpy as np
import pytest
from onnx import helper

import neocpu
from tests.neocpu.frontend.differential import ints, make_model, run_onnxruntime

NAN, INF = np.nan, np.inf
X = np.array(
    [
        [NAN, -INF, 1, 2],
        [NAN, NAN, NAN, NAN],
        [NAN, -INF, -INF, NAN],
        [NAN, INF, INF, NAN],
        [-INF, -INF, -INF, -INF],
        [INF, INF, INF, INF],
        [0.0, -0.0, INF, -INF],
    ],
    np.float32,
)


def check(nodes, constants=None, x=X, **more):
    feeds = {"x": x, **more}
    model = make_model(nodes, feeds, constants)
    (expected,) = run_onnxruntime(model, feeds)
    with neocpu.compile(model, threads=1, verify=False, only_databases=True) as compiled:
        actual = compiled.module(1).run(feeds)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSumExp"])
def test_reductions(op):
    check([helper.make_node(f"Reduce{op}", ["x", "a"], ["y"])], {"a": ints(1)})


@pytest.mark.parametrize("width", [3, 37, 640])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("op", "sign"), [("ReduceMax", -1), ("ReduceMin", 1)])
def test_extrema_of_infinities(op, sign, axis, width):
    """Masked attention asks whether a row is entirely infinite."""
    most = np.finfo(np.float32).max
    rows = [[INF] * 3, [most] * 3, [INF, most, INF], [INF, 1, -INF]]
    x = sign * np.array([row + row[:1] * (width - 3) for row in rows], np.float32)
    node = helper.make_node(op, ["x", "a"], ["y"], keepdims=0)
    check([node], {"a": ints(axis)}, np.ascontiguousarray(x if axis else x.T))


@pytest.mark.parametrize("value", [0.0, -0.0, INF, -INF, NAN, 1.0])
@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_arithmetic_with_a_number(op, value, shape):
    constants = {"v": np.full(shape, value, np.float32)}
    check([helper.make_node(op, ["x", "v"], ["y"])], constants)
    check([helper.make_node(op, ["v", "x"], ["y"])], constants)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_negated_comparisons_with_nan(op):
    compared = helper.make_node(op, ["x", "v"], ["e"])
    check([compared, helper.make_node("Not", ["e"], ["y"])], v=X[::-1].copy())
    chosen = helper.make_node("Where", ["n", "x", "v"], ["y"])
    check([compared, helper.make_node("Not", ["e"], ["n"]), chosen], v=X[::-1].copy())


def test_nan_is_not_itself():
    nodes = [
        helper.make_node("Equal", ["x", "x"], ["e"]),
        helper.make_node("Where", ["e", "x", "v"], ["y"]),
    ]
    check(nodes, {"v": np.float32(7)})


@pytest.mark.parametrize("op", ["Sign", "Abs", "Neg", "Relu", "Softmax", "LogSoftmax", "Sigmoid"])
def test_one_operand(op):
    check([helper.make_node(op, ["x"], ["y"])])


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0])
def test_powers(value):
    check([helper.make_node("Pow", ["x", "v"], ["y"])], {"v": np.float32(value)})


def test_a_softmax_written_out():
    nodes = [
        helper.make_node("ReduceMax", ["x", "a"], ["m"]),
        helper.make_node("Sub", ["x", "m"], ["s"]),
        helper.make_node("Exp", ["s"], ["e"]),
        helper.make_node("ReduceSum", ["e", "a"], ["t"]),
        helper.make_node("Div", ["e", "t"], ["y"]),
    ]
    check(nodes, {"a": ints(1)})
