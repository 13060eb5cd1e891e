"""Tensors between 1D convolutions stay images of one row."""

import numpy as np
import pytest
from onnx import helper
from relax_modules import assert_same_results, assert_unchanged, module, names
from tvm import relax

import neocpu
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.folding.fold_constants import fold_constants
from neocpu.graph.reordering.sink_squeezes import sink_squeezes
from neocpu.graph.simplify import simplify
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import make_model, random

R = relax.op
IMAGE, ROW = (2, 3, 1, 5), (2, 3, 5)


def constant(*shape):
    return relax.const(random(*shape))


MOVED = {
    "relu": lambda x: R.nn.relu(x),
    "clip": lambda x: R.clip(x, 0, 6),
    "add of a channel": lambda x: R.add(x, constant(3, 1)),
    "product of a row": lambda x: R.multiply(constant(5), x),
    "product of a number": lambda x: R.multiply(x, relax.const(2.0, "float32")),
    "difference": lambda x: R.subtract(x, constant(1, 3, 1)),
    "sum with itself": lambda x: R.add(x, x),
    "prelu": lambda x: R.nn.prelu(x, constant(3), axis=1),
}


@pytest.mark.parametrize("name", MOVED)
def test_squeezes_sink(name):
    before = module(lambda bb, x: bb.emit(MOVED[name](bb.emit(R.reshape(x, ROW)))), IMAGE)
    after = sink_squeezes(before)
    assert names(after)[-1] == "reshape"
    assert len(names(after)) == 2
    assert_same_results(before, after)


def test_steps_to_a_grid_sink_too():
    scale, zero = relax.const(0.5, "float32"), relax.const(3, "int8")

    def rounded(bb, x):
        row = bb.emit(R.reshape(x, ROW))
        stored = bb.emit(R.quantize(row, scale, zero, axis=1, out_dtype="int8"))
        return bb.emit(R.dequantize(stored, scale, zero, axis=1, out_dtype="float32"))

    before = module(rounded, IMAGE)
    after = sink_squeezes(before)
    assert names(after) == ["quantize", "dequantize", "reshape"]
    assert_same_results(before, after)


def test_quantised_weights_with_a_new_axis_stay_quantised():
    scales = relax.const(np.array([0.5, 1, 2], np.float32))
    zero = relax.const(np.zeros(3, np.int8))
    weights = relax.const(np.arange(30, dtype=np.int8).reshape(3, 2, 5))

    def expanded(bb, x):
        real = bb.emit(R.dequantize(weights, scales, zero, axis=0, out_dtype="float32"))
        return bb.emit(R.add(x, bb.emit(R.expand_dims(real, 2))))

    before = module(expanded, (3, 2, 1, 5))
    after = fold_constants(before)
    assert names(after) == ["dequantize", "add"]
    assert_same_results(before, after)


def test_operators_with_other_operands_stay():
    """The other side of the sum is no image of one row."""
    before = module(
        lambda bb, x: bb.emit(
            R.add(bb.emit(R.reshape(x, ROW)), bb.emit(R.sum(bb.emit(R.reshape(x, ROW)), 1, True)))
        ),
        IMAGE,
    )
    assert_unchanged(sink_squeezes, before)


def test_other_reshapes_stay():
    assert_unchanged(
        sink_squeezes,
        module(lambda bb, x: bb.emit(R.nn.relu(bb.emit(R.reshape(x, (2, 15))))), IMAGE),
    )


def test_slopes_along_the_last_axis_stay():
    x = random(2, 5, 19)
    weights = {"w": random(7, 5, 3), "slopes": random(17)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("PRelu", ["a", "slopes"], ["y"]),
    ]
    model = make_model(nodes, {"x": x}, weights)
    with neocpu.compile(model, threads=1) as compiled:
        assert compiled.verification.ok


def network():
    """A network of 1D convolutions, with the operators between them."""
    x = random(2, 5, 19)
    weights = {
        "w0": random(7, 5, 3) / 4,
        "b0": random(7),
        "w1": random(7, 1, 4),
        "w2": random(6, 7, 1),
        **dict(zip(["scale", "shift", "mean"], random(3, 6), strict=True)),
        "variance": np.abs(random(6)) + 1,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], strides=[2], pads=[2, 1]),
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], group=7, dilations=[2], auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"]),
        helper.make_node("BatchNormalization", ["e", "scale", "shift", "mean", "variance"], ["f"]),
        helper.make_node("Sigmoid", ["f"], ["y"]),
    ]
    return make_model(nodes, {"x": x}, weights), {"x": x}


def test_a_network_over_one_dimension():
    """The input is expanded once, the output squeezed once, and normalisation is folded."""
    model, feeds = network()
    found = names(simplify(import_relax(load_model(model))))
    assert [found.count(each) for each in ("nn.conv2d", "reshape", "nn.batch_norm")] == [3, 2, 0]
    with neocpu.compile(model) as compiled:
        actual = compiled.module()(feeds["x"])
    np.testing.assert_allclose(actual, run_reference(model, feeds)["y"], rtol=1e-4, atol=1e-5)
