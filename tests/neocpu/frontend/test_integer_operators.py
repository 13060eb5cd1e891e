"""Integer operators compute exactly, in float32 if that holds their sums."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, numpy_helper
from tvm import relax

import neocpu
from neocpu.foundation.errors import ModelError
from neocpu.frontend.load import load_model
from neocpu.ir.expressions import dtype_of
from tests.neocpu.frontend.differential import (
    make_model,
    random,
    relax_ops,
    run_imported,
    run_onnxruntime,
)
from tests.neocpu.frontend.quantised import RNG, WEIGHTS, assert_within_a_step, node


def product_types(module) -> set[str]:
    """Return the element types that convolutions and matrix products of a module have."""
    found = set()

    def visit(expr) -> None:
        if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in (
            "relax.nn.conv2d",
            "relax.matmul",
        ):
            found.add(dtype_of(expr))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


@pytest.mark.parametrize(("last", "opset"), [("i", 10), ("f", 13)])
@pytest.mark.parametrize("points", [np.int8(-3), np.arange(-3, 4).astype(np.int8), None])
def test_integer_convolutions_are_exact_in_float32(points, last, opset):
    x = RNG.integers(0, 256, (2, 5, 7, 6)).astype(np.uint8)
    zeros = {} if points is None else {"p": points}
    nodes = [
        node("ConvInteger", f"x w z {' '.join(zeros)}", "i", pads=[1, 0, 1, 2], strides=[1, 2]),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
    ]
    arrays = {"w": WEIGHTS, "z": np.uint8(100), **zeros}
    model = make_model(nodes, {"x": x}, arrays, outputs=[last], opset=opset)
    # ONNX Runtime refuses zero points by channel; float32 holds these sums.
    centred = WEIGHTS - np.int32(0 if points is None else points).reshape(-1, 1, 1, 1)
    real = node("Conv", "x w", "y", pads=[1, 0, 1, 2], strides=[1, 2])
    feeds = {"x": x.astype(np.float32) - 100}
    (expected,) = run_onnxruntime(
        make_model([real], feeds, {"w": centred.astype(np.float32)}), feeds
    )
    _, module, (actual,) = run_imported(model, {"x": x})
    assert actual.dtype == (np.int32 if last == "i" else np.float32)
    assert np.array_equal(expected, actual)
    assert product_types(module) == {"float32"}


@pytest.mark.parametrize("points", [np.uint8(3), np.arange(7).astype(np.uint8), None])
@pytest.mark.parametrize("shape", [(4, 240), (2, 3, 240)])
def test_integer_matrix_products_are_exact_in_float32(shape, points):
    x = RNG.integers(-128, 128, shape).astype(np.int8)
    zeros = {} if points is None else {"p": points}
    made = node("MatMulInteger", f"x w z {' '.join(zeros)}", "y")
    weights = RNG.integers(0, 256, (240, 7)).astype(np.uint8)
    model = make_model([made], {"x": x}, {"w": weights, "z": np.int8(-9), **zeros}, opset=13)
    (expected,) = run_onnxruntime(model, {"x": x})
    _, module, (actual,) = run_imported(model, {"x": x})
    assert actual.dtype == np.int32
    assert np.array_equal(expected, actual)
    assert product_types(module) == {"float32"}


@pytest.mark.parametrize(
    ("weights", "point"),
    [
        (np.full((600, 7), 127, np.int8), np.uint8(9)),  # up to 600 * 127 * 255
        (np.ones((600, 7), np.int8), np.arange(4).astype(np.uint8)),
    ],
    ids=["large sums", "zero points of rows"],
)
def test_other_integer_products_stay_integers(weights, point):
    x = RNG.integers(128, 256, (4, 600)).astype(np.uint8)
    made = node("MatMulInteger", "x w z", "y")
    model = make_model([made], {"x": x}, {"w": weights, "z": point}, opset=13)
    _, module, (actual,) = run_imported(model, {"x": x})
    # ONNX Runtime refuses zero points by row.
    assert np.array_equal((x - point.astype(np.int32).reshape(-1, 1)) @ weights, actual)
    assert product_types(module) == {"int32"}


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [("x", np.int8, "ConvInteger 'the_.*' lacks its input 1"), ("x w", np.float32, "ConvInteger")],
)
def test_integer_products_that_are_none_are_named(inputs, kind, message):
    x = np.zeros((1, 5, 7, 6), np.uint8)
    model = make_model(
        [node("ConvInteger", "x w", "y")], {"x": x}, {"w": WEIGHTS.astype(np.int8)}, opset=13
    )
    model.graph.node[0].input[:] = inputs.split()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHTS.astype(kind), "w"))
    with pytest.raises(ModelError, match=message):
        load_model(model)


def test_large_sums_that_become_float32_are_float32():
    x = RNG.integers(0, 256, (4, 600)).astype(np.uint8)
    weights = RNG.integers(100, 128, (600, 7)).astype(np.int8)
    nodes = [node("MatMulInteger", "x w", "i"), node("Cast", "i", "y", to=TensorProto.FLOAT)]
    model = make_model(nodes, {"x": x}, {"w": weights}, opset=13)
    _, module, (actual,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(actual, x.astype(np.int64) @ weights, rtol=1e-6)
    assert product_types(module) == {"float32"}


@pytest.mark.parametrize("shape", [(1, 5, 7, 6), (70,), ()])
@pytest.mark.parametrize("moved", [-9.0, 0.0, 9.0])
def test_the_range_of_any_tensor_is_found(shape, moved):
    made = node("DynamicQuantizeLinear", "x", "q scale point")
    data = np.asarray(random(*shape, seed=3) + np.float32(moved), np.float32)
    model = make_model([made], {"x": data}, outputs=["q", "scale", "point"], opset=13)
    expected = run_onnxruntime(model, {"x": data})
    _, _, actual = run_imported(model, {"x": data})
    assert np.abs(actual[0].astype(int) - expected[0]).max() <= 1
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6)
    assert actual[2] == expected[2]


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_ranges_found_at_run_time(factor):
    nodes = [
        node("DynamicQuantizeLinear", "x", "q scale point"),
        node("ConvInteger", "q w point", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "f scale", "y"),
    ]
    model = make_model(nodes, {"x": random(1, 5, 7, 6)}, {"w": WEIGHTS}, opset=13)
    assert_within_a_step(model, {"x": factor * random(1, 5, 7, 6, seed=8)}, step=1)


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64)])
@pytest.mark.parametrize("zero", [None, np.int8(-7), np.arange(-8, 8).astype(np.int8)])
def test_products_of_ranges_found_at_run_time(shape, zero):
    """Stored integers are multiplied, and the zero point's contribution is subtracted."""
    zeros = {} if zero is None else {"z": zero}
    nodes = [
        node("DynamicQuantizeLinear", "x", "q scale point"),
        node("MatMulInteger", f"q w point {' '.join(zeros)}", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "f scale", "y"),
    ]
    weights = RNG.integers(-100, 100, (64, 16)).astype(np.int8)
    x = random(*shape) + np.float32(0.5)
    model = make_model(nodes, {"x": x}, {"w": weights, **zeros}, opset=13)
    (expected,) = run_onnxruntime(model, {"x": x})
    _, module, (actual,) = run_imported(model, {"x": x})
    step = float(np.ptp(np.append(x, 0))) / 255
    assert np.abs(actual - expected).max() <= 110 * step
    points = [call for call in relax_ops(module) if call == "subtract"]
    assert len(points) == 1


def test_products_of_rounded_data_are_of_bytes():
    nodes = [
        node("DynamicQuantizeLinear", "x", "q scale point"),
        node("MatMulInteger", "q w point", "i"),
        node("Cast", "i", "y", to=TensorProto.FLOAT),
    ]
    weights = RNG.integers(-100, 100, (256, 256)).astype(np.int8)
    model = make_model(nodes, {"x": random(64, 256)}, {"w": weights}, opset=13)
    options = {"target": "llvm -mcpu=cascadelake", "verify": False, "only_databases": True}
    with neocpu.compile(model, threads=1, **options) as compiled:
        ops = compiled.header.plan.ops
    assert [one.name for one in ops if "uint8" in repr(one)] == ["dense_0"]
