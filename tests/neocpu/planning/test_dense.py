"""Dense layers: matched with their epilogue, and lowered for any rank of rows."""

import math

import needs
import numpy as np
import onnx
import pytest
from networks import build, run_as_tvm
from tvm import relax

import neocpu
from neocpu.planning.costs import CostModel
from neocpu.planning.extract import extract
from neocpu.planning.operators.dense_forms_op import computed_in
from neocpu.planning.operators.dense_op import FEW_ROWS
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, SMALL_TILES
from neocpu.schedules.vocabulary.scheme import SplitScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target


def mlp(net, x):
    columns = int(x.ty.shape[-1])
    hidden = net.emit(relax.op.matmul(x, net.const(columns, 37)))
    hidden = net.relu(net.emit(relax.op.add(hidden, net.const(37))))
    out = net.emit(relax.op.matmul(hidden, net.const(37, columns)))
    return net.emit(relax.op.add(net.emit(relax.op.add(out, net.const(columns))), x))


@pytest.mark.parametrize("shape", [(1, 19), (5, 64), (2, 7, 33)])
def test_epilogues_and_results(shape):
    first, second = run_as_tvm(build(mlp, shape))[0].dense
    assert [op.kind for op in first.workload.epilogue] == ["bias_add", "relu"]
    assert [op.kind for op in second.workload.epilogue] == ["bias_add", "add"]
    assert first.workload.m == np.prod(shape[:-1])


def test_activations_times_activations_are_no_dense_layer():
    def body(net, x, y):
        return net.emit(relax.op.matmul(x, y))

    assert extract(build(body, (3, 4), (4, 5))).dense == ()


TILED = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")


def layer_of(rows, depth, columns, weight=None):
    def body(net, x):
        weights = net.const(depth, columns)
        if weight is not None:
            weights = relax.const(np.full((depth, columns), weight, np.float32))
        return net.relu(net.emit(relax.op.matmul(x, weights)))

    (layer,) = extract(build(body, (rows, depth))).dense
    return layer


def test_many_rows_are_multiplied_in_parts_by_tiles():
    layer = computed_in(layer_of(197, 192, 100), Precision.FP32, TILED, splits=True)
    assert isinstance(layer.scheme(TILED, 2), SplitScheme)
    assert layer.precision is Precision.FP32


@pytest.mark.parametrize(
    ("layer", "cpu", "splits"),
    [
        (layer_of(197, 192, 100), "sapphirerapids", False),
        (layer_of(197, 192, 100), "znver4", True),
        (layer_of(197, 192, 100, weight=np.inf), "sapphirerapids", True),
        (layer_of(197, 200, 100), "sapphirerapids", True),  # a row ends within a line
        (layer_of(FEW_ROWS, 192, 100), "sapphirerapids", True),  # bound by memory
    ],
)
def test_other_layers_are_computed_in_float32(layer, cpu, splits):
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert computed_in(layer, Precision.FP32, target, splits=splits) is layer


@pytest.mark.parametrize(
    ("admission", "templates", "splits"),
    [
        (EVERY_TILE, None, True),
        (SMALL_TILES, None, False),
        (EVERY_TILE, frozenset({"conv2d_direct"}), False),
        (EVERY_TILE, frozenset({"conv2d_split"}), True),
    ],
)
def test_values_are_split_if_errors_and_templates_allow_it(admission, templates, splits):
    costs = CostModel(
        target=TILED, threads=1, measured=None, templates=templates, admission=admission
    )
    assert costs.splits_values == splits


@needs.tiles
@pytest.mark.parametrize("shape", [(19, 64), (16, 96), (2, 33, 160)])
def test_layers_in_tiles_err_a_few_millionths(shape):
    rows, depth = math.prod(shape[:-1]), shape[-1]
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(s).astype("float32") for s in ((depth, 37), shape))
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    value = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "matmul",
        [value("x", kind, shape)],
        [value("y", kind, (*shape[:-1], 37))],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with neocpu.compile(model) as compiled:
        got, (layer,) = compiled.module()(x), compiled.plan.ops
    assert layer.scheme.template == "conv2d_split"
    exact = x.astype(np.float64) @ w
    assert 3e-7 < np.linalg.norm(got - exact) / np.linalg.norm(exact) < 6e-6, rows


STORED = {
    "a scale per column": (np.float32(np.linspace(0.01, 0.05, 37)), np.zeros(37, "int8")),
    "one scale": (np.float32(0.02), np.int8(0)),
    "a zero point": (np.float32(0.02), np.uint8(120)),
}


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
@pytest.mark.parametrize("name", STORED)
def test_few_rows_read_weights_as_integers(name, rows):
    """Results stay the same, and weights take a quarter of the memory."""
    scale, zero = STORED[name]
    rng = np.random.default_rng(0)
    low, high = (0, 240) if zero.dtype == np.uint8 else (-127, 128)
    values = rng.integers(low, high, (19, 37)).astype(zero.dtype)
    constants = [relax.const(each) for each in (values, scale, zero)]

    def body(net, x):
        weights = net.emit(relax.op.dequantize(*constants, 1, "float32"))
        hidden = net.emit(relax.op.matmul(x, weights))
        return net.relu(net.emit(relax.op.add(hidden, net.const(37))))

    (layer,) = run_as_tvm(build(body, (rows, 19)))[0].dense
    assert layer.workload.numerics.weights == ("int8" if rows <= FEW_ROWS else "float32")
