"""The sweep finds faults, and no false ones."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import onnx
import pytest

from tests.neocpu.quantised_models import image, network, quantised
from tests.precision import sweep
from tests.precision.visible_layers import constants, make_visible


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return quantised(network(), per_channel=True)


def test_layers_agree(model):
    layers, plan = sweep.compare_layers(model, {"x": image(9)}, "int8")
    assert layers.agree
    assert layers.tensors == len(make_visible(model)[1]) > 10
    assert layers.elements > 10_000
    assert layers.one_off <= 1e-3 * layers.elements
    assert sum(op.precision == "int8" for op in plan.ops if op.kind == "conv2d") == 5


def test_a_wrong_layer_is_found_alone(model, monkeypatch):
    """The weights of one layer differ: only its tensor is far off, not later ones."""
    real, name = sweep.reference, "w_left_quantized"
    flipped = onnx.numpy_helper.from_array(-constants(model)[name], name)

    def other(made: onnx.ModelProto, feeds: sweep.Feeds) -> dict[str, np.ndarray]:
        for each in made.graph.initializer:
            if each.name == name:
                each.CopyFrom(flipped)
        return real(made, feeds)

    monkeypatch.setattr(sweep, "reference", other)
    layers, _ = sweep.compare_layers(model, {"x": image(9)}, "int8")
    assert not layers.agree
    assert "left" in layers.worst
    assert layers.two_off < 0.2 * layers.elements


def test_a_refusal_is_no_failure(monkeypatch):
    four_bits = {"four": lambda name, images: _four_bits()}
    monkeypatch.setattr(sweep, "QUANTISERS", four_bits)
    case = sweep.run_case("net", "four", 8, whole=False)
    assert case.outcome == "refused"
    assert "int4" in case.message


def test_totals_count_networks_outcomes_and_steps():
    layers = sweep.Layers(tensors=2, elements=30, one_off=3, two_off=1, no_ties=1)
    cases = [
        sweep.Case("a", "x", 32, "agrees", layers=layers),
        sweep.Case("a", "y", 64, "agrees", layers=layers),
        sweep.Case("b", "x", 32),
    ]
    assert sweep.totals([asdict(case) for case in cases]) == (
        "3 models of 2 networks: 2 agrees, 1 refused; 4 tensors, 60 elements, "
        "6 a step off (no ties: 2), 2 further"
    )


def _four_bits() -> onnx.ModelProto:
    helper = onnx.helper
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "four",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3, 8, 8))],
        [
            onnx.numpy_helper.from_array(np.float32(0.1), "s"),
            helper.make_tensor("z", onnx.TensorProto.INT4, (), [0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
