"""Dense layers of many rows in integers, against ONNX's own reference."""

from __future__ import annotations

import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import neocpu
from neocpu.planning.operators.dense_op import FEW_ROWS

ROWS = FEW_ROWS + 3
STEP, RESULT_STEP = np.float32(0.02), np.float32(0.7)


class Graph:
    """A graph of `x`, whose constants are drawn anew for each seed."""

    def __init__(self, kind: str = "uint8", seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.zero = np.array(117 if kind == "uint8" else -11, kind)
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}

    def const(self, value: object) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(value)
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def rounded(self, x: str, step: np.float32 = STEP) -> str:
        numbers = [self.const(step), self.const(self.zero)]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def weights(self, k: int, n: int, most: int = 127) -> tuple[np.ndarray, np.ndarray]:
        values = self.rng.integers(-most, most + 1, (k, n)).astype("int8")
        # Outliers at both ends, side by side: 16 bits do not hold the sum of two.
        values[:2, 0], values[-2:, -1] = most, -most
        return values, self.rng.uniform(0.001, 0.01, n).astype("float32")

    def product(self, x: str, k: int, n: int, most: int = 127) -> str:
        values, scales = self.weights(k, n, most)
        zeros = self.const(np.zeros(n, "int8"))
        arrays = self.const(values), self.const(scales), zeros
        real = self.node("DequantizeLinear", *arrays, axis=1)
        bias = self.const(self.rng.normal(size=n).astype("float32"))
        return self.node("Add", self.node("MatMul", x, real), bias)

    def model(self, result: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            "dense",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()],
        )
        # The standard's, and ONNX Runtime's own operators.
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compared(model, shape, precision="int8", threads=2):
    """Return the model's outputs, ONNX's, and the plan's dense layers."""
    x = np.random.default_rng(5).normal(size=shape).astype("float32")
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    small = precision == "int8"
    with neocpu.compile(model, precision=precision, small=small, threads=threads) as compiled:
        got = compiled.module()(x)
        layers = [op for op in compiled.plan.ops if op.kind == "dense"]
    return got, expected, layers


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("most", [127, 64, 32, 16])
@pytest.mark.parametrize(
    ("shape", "n"),
    [((ROWS, 4), 1), ((5, 20), 37), ((2, 7, 64), 40), ((197, 96), 24), ((1, 3, 9, 16), 48)],
)
@needs.one_in(3)
def test_sums_are_exact(shape, n, most, kind):
    """Weights vary: 16 bits hold the sums of 0, 2, 4 or 8 of their products."""
    graph = Graph(kind)
    y = graph.product(graph.rounded("x"), shape[-1], n, most)
    got, expected, (layer,) = compared(graph.model(y, shape), shape)
    assert layer.numerics.sum == "int32"
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_layer_stores_integers_that_only_such_layers_read(kind):
    graph = Graph(kind)
    hidden = graph.node("Relu", graph.product(graph.rounded("x"), 32, 44))
    hidden = graph.rounded(hidden, RESULT_STEP)
    y = graph.node("Add", graph.product(hidden, 44, 16), graph.product(hidden, 44, 16))
    got, expected, layers = compared(graph.model(y, (ROWS, 32)), (ROWS, 32))
    assert [layer.numerics.output for layer in layers] == ["uint8", "float32", "float32"]
    # Hidden numbers between two steps may take either.
    assert np.linalg.norm(got - expected) <= 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("reader", ["itself", "Sigmoid"])
def test_a_layer_stores_float32_that_others_read_too(reader):
    graph = Graph()
    hidden = graph.rounded(graph.product(graph.rounded("x"), 32, 32), RESULT_STEP)
    other = hidden if reader == "itself" else graph.node(reader, hidden)
    y = graph.node("Add", graph.product(hidden, 32, 32), other)
    got, expected, layers = compared(graph.model(y, (ROWS, 32)), (ROWS, 32))
    assert [layer.numerics.output for layer in layers] == ["float32", "float32"]
    assert np.linalg.norm(got - expected) <= 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize(("shape", "n"), [((FEW_ROWS, 16), 16), ((ROWS, 18), 16)])
def test_few_rows_and_odd_depths_stay_in_float32(shape, n):
    graph = Graph()
    y = graph.product(graph.rounded("x"), shape[-1], n)
    got, expected, (layer,) = compared(graph.model(y, shape), shape)
    assert "int32" not in str(layer.numerics)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(transposed):
    graph = Graph()
    values, scales = graph.weights(24, 30)
    numbers = graph.const(STEP), graph.const(graph.zero)
    data = graph.node("QuantizeLinear", "x", *numbers)
    weights = [values.T if transposed else values, scales, np.zeros(30, "int8")]
    bias = graph.rng.integers(-999, 999, 30).astype("int32")
    given = [data, *numbers, *map(graph.const, weights), graph.const(bias)]
    y = graph.node("QGemm", *given, domain="com.microsoft", transB=transposed)
    x = np.random.default_rng(5).normal(size=(ROWS, 24)).astype("float32")
    stored = np.clip(np.rint(x / STEP) + graph.zero, 0, 255).astype(np.int64)
    sums = (stored - int(graph.zero)) @ values.astype(np.int64) + bias
    with neocpu.compile(
        graph.model(y, x.shape), precision="int8", small=True, threads=2
    ) as compiled:
        got = compiled.module()(x)
        (layer,) = [op for op in compiled.plan.ops if op.kind == "dense"]
    assert layer.numerics.sum == "int32"
    np.testing.assert_allclose(got, sums * (STEP * scales), rtol=1e-5, atol=1e-5)


def test_qlinear_matmul():
    graph = Graph()
    values, scales = graph.weights(24, 30)
    numbers = graph.const(STEP), graph.const(graph.zero)
    made = graph.const(RESULT_STEP), graph.const(graph.zero)
    data = graph.node("QuantizeLinear", "x", *numbers)
    weights = map(graph.const, (values, scales[:1].reshape(()), np.int8(0)))
    y = graph.node("QLinearMatMul", data, *numbers, *weights, *made)
    y = graph.node("DequantizeLinear", y, *made)
    got, expected, (layer,) = compared(graph.model(y, (2, 9, 24)), (2, 9, 24))
    assert layer.numerics.sum == "int32"
    steps = np.rint(np.abs(got - expected) / RESULT_STEP)
    assert steps.max() <= 1
    assert steps.mean() <= 0.01, "between two steps it may take either"


def test_faster_of_both_is_taken():
    """Sums of eight products in 16 bits are faster than float32; AVX2 does not widen weights."""
    found = {}
    for most in (127, 16):
        graph = Graph()
        y = graph.product(graph.rounded("x"), 256, 256, most)
        model = graph.model(y, (64, 256))
        with neocpu.compile(
            model, precision="auto", target="llvm -mcpu=znver1", verify=False
        ) as compiled:
            (layer,) = [op for op in compiled.plan.ops if op.kind == "dense"]
        found[most] = layer.precision
    assert found == {127: "fp32", 16: "int8"}
