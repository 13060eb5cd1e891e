"""Mixed precision: layers in integers where that is faster, within a budget that is measured."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest

import neocpu
from neocpu import QuantiseOptions
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.frontend import load_model
from neocpu.quantiser import compile_calibrated as module
from neocpu.quantiser.calibrated import calibrate
from neocpu.quantiser.compile_calibrated import Budget
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.mixed_precision import LayerChoice, within
from neocpu.quantiser.observation import visible
from neocpu.quantiser.qdq import TensorGrid
from neocpu.quantiser.sensitivity import laboratory_of
from tests.neocpu.quantised_models import image, network, run_onnxruntime

ROOT = Path(__file__).parents[3]
DATA = [image(seed) for seed in range(6)]
NAMES = ("stem_sum", "left_sum", "right", "other", "last_sum", "y")


def silent(progress: object) -> None:
    pass


@pytest.fixture(scope="module")
def calibrated():
    graph = float_graph(load_model(network()))
    samples = [{"x": x} for x in DATA]
    with visible(graph.proto, graph.tensors, 2) as original:
        yield calibrate(graph, original, samples, QuantiseOptions(), 2, silent)


def choices(**noise: float) -> tuple[LayerChoice, ...]:
    return tuple(LayerChoice(name, 1e-3, value) for name, value in noise.items())


def test_what_saves_least_for_its_noise_is_given_up_first():
    layers = choices(a=0.001, b=0.02, c=0.003)
    assert [one.result for one in within(layers, 1.0)] == ["a", "b", "c"]
    assert [one.result for one in within(layers, 0.005)] == ["a", "c"]
    assert [one.result for one in within(layers, 0.0001)] == []
    dear = (LayerChoice("a", 1e-6, 0.001), LayerChoice("b", 1e-3, 0.004))
    assert [one.result for one in within(dear, 0.0045)] == ["b"]


def test_a_part_of_the_layers_may_be_in_integers(calibrated):
    assert tuple(calibrated.layers) == NAMES
    proto = calibrated.written_with(["left_sum", "last_sum"])
    onnx.checker.check_model(proto, full_check=True)
    weights = [n for n in proto.graph.node if n.op_type == "Conv" and "dequantized" in n.input[1]]
    assert len(weights) == 2
    x = image(9)
    wanted = run_onnxruntime(network(), x)
    noise = [np.square(run_onnxruntime(p, x) - wanted).mean()
             for p in (proto, calibrated.written())]  # fmt: skip
    assert 0 < noise[0] < noise[1]


def test_the_laboratory_is_what_writing_the_model_does(calibrated):
    graph, samples = calibrated.graph, [{"x": x} for x in DATA]
    with laboratory_of(graph, calibrated.layers, samples, 2) as laboratory:
        assert laboratory.noise({}) == 0.0
        some = laboratory.noise({"x": calibrated.grids["x"]}, ["stem_sum"])
        every = laboratory.noise(calibrated.grids, NAMES)
    assert 0 < some < every
    for results, found in ((["stem_sum"], some), (NAMES, every)):
        proto = calibrated.written_with(results) if len(results) == 1 else calibrated.written()
        ratio = []
        for x in DATA:
            wanted = run_onnxruntime(network(), x)
            noise = np.square(run_onnxruntime(proto, x) - wanted).mean()
            ratio.append(noise / np.square(wanted).mean())
        # Of four of the samples.
        assert found == pytest.approx(np.mean(ratio), rel=0.5)


def test_budgets():
    assert Budget.parse(None, None).max_error == module.DEFAULT_MAX_ERROR
    assert Budget.parse(None, 0.9).max_error is None
    for wrong in ((0.0, None), (float("inf"), None), (None, 1.5)):
        with pytest.raises(UsageError, match=r"max_error must be|min_agreement must be"):
            Budget.parse(*wrong)


def test_integers_keep_the_limit_or_are_refused():
    with neocpu.compile_calibrated(network(), DATA, precision="int8", threads=2) as compiled:
        found = [op["precision"] for op in compiled.plan["ops"] if op["kind"] == "conv2d"]
        assert found == ["int8"] * 5
        x = image(9)
        wanted = run_onnxruntime(network(), x)
        assert np.linalg.norm(compiled.module()(x) - wanted) < 0.1 * np.linalg.norm(wanted)
    with pytest.raises(AccuracyError, match=r"in 8 bits outputs err by .*, more than 1e-05"):
        neocpu.compile_calibrated(network(), DATA, precision="int8", max_error=1e-5)


@pytest.mark.parametrize("faster", [True, False])
def test_the_faster_one_is_returned(monkeypatch, faster):
    """Whatever this machine is faster in."""
    everything = tuple(LayerChoice(name, 1e-3) for name in NAMES)
    monkeypatch.setattr(module, "faster_in_integers", lambda *_: everything)
    monkeypatch.setattr(module, "_time_ratio", lambda *_: 0.5 if faster else 1.5)
    with neocpu.compile_calibrated(network(), DATA, threads=2) as compiled:
        assert len(compiled.integers) == (6 if faster else 0)
        assert compiled.verification is not None
        assert compiled.verification.ok


def test_layers_are_left_out_until_the_limit_holds(monkeypatch):
    everything = tuple(LayerChoice(name, 1e-3) for name in NAMES)
    monkeypatch.setattr(module, "faster_in_integers", lambda *_: everything)
    monkeypatch.setattr(module, "_time_ratio", lambda *_: 0.5)
    counts = []
    for limit in (0.5, 0.006, 1e-6):
        with neocpu.compile_calibrated(network(), DATA, max_error=limit) as compiled:
            counts.append(len(compiled.integers))
            x = image(9)
            wanted = run_onnxruntime(network(), x)
            error = np.linalg.norm(compiled.module()(x) - wanted) / np.linalg.norm(wanted)
            assert error <= 2 * limit or counts[-1] == 0
    assert counts[0] == 6
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_tensors_of_16_bits_are_as_fine_in_the_laboratory(calibrated):
    graph, samples = calibrated.graph, [{"x": x} for x in DATA]
    narrow = calibrated.grids["x"]
    wide = TensorGrid(narrow.scale / 257, narrow.zero * 257, 16)
    with laboratory_of(graph, {}, samples, 2) as laboratory:
        assert 0 < laboratory.noise({"x": wide}) < laboratory.noise({"x": narrow})


def test_dense_layers_are_weights_alone(calibrated):
    proto = calibrated.written_with(["y"])
    kinds = [node.op_type for node in proto.graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (0, 1)
    with neocpu.compile(proto) as compiled:
        assert compiled.plan["weights"]["packed_bytes"] > 0


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="correction by activations is for quantize"):
        neocpu.compile_calibrated(network(), DATA, QuantiseOptions(correction="activations"))
    with pytest.raises(UsageError, match="for --precision int8 or auto, not fp32"):
        neocpu.compile_calibrated(network(), DATA, precision="fp32")


def test_the_example_of_a_classifier(tmp_path, capsys):
    """It runs as it is written, on pictures."""
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    example = runpy.run_path(str(ROOT / "examples" / "quantize_classifier.py"))
    onnx.save(network(), tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    for number in range(4):
        pixels = rng.integers(0, 256, (24, 24, 3), np.uint8)
        image_module.fromarray(pixels).save(tmp_path / f"{number}.png")
    example["main"](str(tmp_path / "net.onnx"), str(tmp_path))
    assert (tmp_path / "net.int8.onnx").exists()
    neocpu.load(tmp_path / "net.mixed.so").close()
    assert "dB above noise" in capsys.readouterr().out
