"""Mixed precision: faster layers run in integers, within a measured error budget."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import needs
import numpy as np
import onnx
import pytest
from differential import make_model
from onnx.helper import make_node

import neocpu
from neocpu import QuantiseOptions
from neocpu.cli.main import main
from neocpu.compilation.compile_options import CompileOptions
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.frontend.load import load_model
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.quantised.quantised_operators import is_quantised
from neocpu.plan.reports.decisions import IntegerLayer
from neocpu.plan.text.plan_text import calibration_fields
from neocpu.quantiser import compile_calibrated as module
from neocpu.quantiser.calibrated import calibrate
from neocpu.quantiser.compile_calibrated import Budget, _with_artifact_pictures
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.mixed_precision import all_in_integers, within
from neocpu.quantiser.observation import visible
from neocpu.quantiser.pictures import Preprocessing
from neocpu.quantiser.qdq import TensorGrid
from neocpu.quantiser.sensitivity import laboratory_of
from neocpu.runtime.artifact import read_header
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
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
    with visible(graph.proto, graph.compared, graph.tensors, 2) as original:
        yield calibrate(graph, original, samples, QuantiseOptions(), 2, silent)


def choices(**noise: float) -> tuple[IntegerLayer, ...]:
    return tuple(IntegerLayer(name, name, 1e-3, value) for name, value in noise.items())


def decide(monkeypatch, layers, integers=1.0, float32=2.0):
    """Have these layers be faster in integers, and a race take so many seconds."""
    monkeypatch.setattr(module, "faster_in_integers", lambda *_: layers)
    monkeypatch.setattr(module, "_race", lambda *_: (integers, float32))


EVERYTHING = choices(**dict.fromkeys(NAMES, 0.0))


def test_layers_that_save_least_for_their_noise_are_given_up_first():
    layers = choices(a=0.001, b=0.02, c=0.003)
    assert [one.result for one in within(layers, 1.0)] == ["a", "b", "c"]
    assert [one.result for one in within(layers, 0.005)] == ["a", "c"]
    assert [one.result for one in within(layers, 0.0001)] == []
    dear = (IntegerLayer("a", "a", 1e-6, 0.001), IntegerLayer("b", "b", 1e-3, 0.004))
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


def test_layers_are_found_by_names_with_dots():
    """PyTorch's exporter makes such names; Relax has no dots in names."""
    proto = network()
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [name.replace("_sum", ".sum") for name in names]
    graph = float_graph(load_model(proto))
    with visible(graph.proto, graph.compared, graph.tensors, 2) as original:
        dotted = calibrate(graph, original, [{"x": DATA[0]}], QuantiseOptions(), 2, silent)
    options = CompileOptions.parse(threads=1, precision="int8", small=True)
    chosen = all_in_integers(dotted, parse_target("avx512-vnni"), options)
    results = [one.result for one in chosen]
    assert results == ["stem.sum", "left.sum", "right", "other", "last.sum", "y"]


def test_trial_quantisation_equals_the_written_model(calibrated):
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
        # The noise is that of four of the samples.
        assert found == pytest.approx(np.mean(ratio), rel=0.5)


def test_budgets():
    assert Budget.parse(None, None).max_error == module.DEFAULT_MAX_ERROR
    assert Budget.parse(None, 0.9).max_error is None
    for wrong in ((0.0, None), (float("inf"), None), (None, 1.5)):
        with pytest.raises(UsageError, match=r"max_error must be|min_agreement must be"):
            Budget.parse(*wrong)


def test_integers_keep_the_limit_or_are_refused():
    how = {"precision": "int8", "small": True, "threads": 2}
    with neocpu.compile_calibrated(network(), DATA, **how) as compiled:
        found = [op.precision for op in compiled.plan.ops if op.kind == "conv2d"]
        assert found == ["int8"] * 5
        x = image(9)
        wanted = run_onnxruntime(network(), x)
        assert np.linalg.norm(compiled.module()(x) - wanted) < 0.1 * np.linalg.norm(wanted)
    with pytest.raises(AccuracyError, match=r"in 8 bits outputs err by .*, more than 1e-05"):
        neocpu.compile_calibrated(network(), DATA, precision="int8", max_error=1e-5)


@pytest.mark.parametrize("faster", [True, False])
@needs.one_in(2)
def test_the_faster_one_is_returned(monkeypatch, faster):
    """The result depends on what is faster on this machine."""
    decide(monkeypatch, EVERYTHING, 1.0 if faster else 3.0)
    with neocpu.compile_calibrated(network(), DATA, threads=2) as compiled:
        assert len(compiled.integers) == (6 if faster else 0)
        assert compiled.verification is not None
        assert compiled.verification.ok


def test_layers_are_left_out_until_the_limit_holds(monkeypatch):
    decide(monkeypatch, EVERYTHING)
    counts, said = [], []
    for limit in (0.5, 0.006, 1e-6):
        with neocpu.compile_calibrated(network(), DATA, max_error=limit) as compiled:
            counts.append(len(compiled.integers))
            said.append(calibration_fields(compiled.plan)[0])
            x = image(9)
            wanted = run_onnxruntime(network(), x)
            error = np.linalg.norm(compiled.module()(x) - wanted) / np.linalg.norm(wanted)
            assert error <= 2 * limit or counts[-1] == 0
    assert counts[0] == 6
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
    assert re.fullmatch(r"none: with them outputs err by .*, more than 1e-06", said[-1][1])


def test_layers_without_a_gain_say_so(monkeypatch):
    decide(monkeypatch, ())
    with neocpu.compile_calibrated(network(), DATA) as compiled:
        assert calibration_fields(compiled.plan) == [("integers", "none: float32 is as fast")]


def test_tensors_of_16_bits_are_as_fine_in_the_laboratory(calibrated):
    graph, samples = calibrated.graph, [{"x": x} for x in DATA]
    narrow = calibrated.grids["x"]
    wide = TensorGrid(narrow.scale / 257, narrow.zero * 257, 16)
    with laboratory_of(graph, {}, samples, 2) as laboratory:
        assert 0 < laboratory.noise({"x": wide}) < laboratory.noise({"x": narrow})


def test_dense_layers_quantise_only_their_weights(calibrated):
    proto = calibrated.written_with(["y"])
    kinds = [node.op_type for node in proto.graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (0, 1)
    with neocpu.compile(proto) as compiled:
        assert compiled.plan.weights.packed_bytes > 0


def test_senseless_options_are_refused():
    with pytest.raises(UsageError, match="correction by activations is for quantize"):
        neocpu.compile_calibrated(network(), DATA, QuantiseOptions(correction="activations"))
    with pytest.raises(UsageError, match="for precision='int8' or auto, not fp32"):
        neocpu.compile_calibrated(network(), DATA, precision="fp32")


def test_integers_of_a_float32_model_need_data(tmp_path):
    """The model would silently be computed in float32 otherwise."""
    for compiling in (
        lambda: neocpu.compile(network(), precision="int8"),
        lambda: neocpu.compile(network(), precision="int8", shapes=[{}]),
        lambda: neocpu.compile_fat(network(), ("avx2:int8", "avx512"), tmp_path / "fat.so"),
    ):
        with pytest.raises(UsageError, match=r"int8.* is for quantised models, .*calibrat"):
            compiling()
    assert not list(tmp_path.iterdir())
    with neocpu.compile(network(), precision="auto", threads=1, verify=False) as compiled:
        assert {op.precision for op in compiled.plan.ops} == {"fp32"}


@pytest.mark.parametrize(
    ("op_type", "domain"),
    [
        ("DequantizeLinear", ""),
        ("DynamicQuantizeLinear", ""),
        ("ConvInteger", ""),
        ("QLinearAdd", "com.microsoft"),
        ("QGemm", "com.microsoft"),
    ],
)
def test_any_operator_on_quantised_numbers_makes_a_quantised_model(op_type, domain):
    """Operators in branches count too."""
    assert not is_quantised(network())
    inner = onnx.helper.make_node(op_type, ["a"], ["b"], domain=domain)
    branch = onnx.helper.make_graph([inner], "branch", [], [])
    outer = onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = onnx.helper.make_model(onnx.helper.make_graph([outer], "g", [], []))
    assert is_quantised(model)


@needs.everything()
def test_the_example_of_a_classifier(tmp_path, capsys):
    """The example runs unchanged, on pictures."""
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


def test_a_tuning_budget_is_spent_once(monkeypatch, tmp_path):
    """The float32 model and the integer model are tuned in one call."""
    tuned: list[list[Any]] = []

    def tune(networks, *rest):
        tuned.append(networks)
        return "report"

    monkeypatch.setattr("neocpu.compilation.compile_each.tune_networks", tune)
    decide(monkeypatch, choices(left_sum=0.0))
    known = {"databases": [tmp_path / "new.jsonl"], "only_databases": True}
    with neocpu.compile_calibrated(network(), DATA, tune_budget=5.0, **known) as compiled:
        assert compiled.tuned == "report"
    (forms,) = tuned
    kinds = [
        {each.numerics.data for each in workloads if isinstance(each, Conv2dWorkload)}
        for workloads in forms
    ]
    assert kinds[0] == {"float32"}
    assert len(kinds[1]) > 1


def test_an_artifact_reports_the_gain_and_the_error_of_integers(monkeypatch, tmp_path, capsys):
    decide(monkeypatch, choices(left_sum=0.0, last_sum=0.0))
    path = str(tmp_path / "mixed.so")
    with neocpu.compile_calibrated(network(), DATA, max_error=0.2) as compiled:
        compiled.export(path)
    plan = read_header(path).plan
    found = plan.calibration
    assert [layer.name for layer in found.layers] == ["left_sum", "last_sum"]
    assert all(0 < layer.noise < 0.01 for layer in found.layers)
    assert 0 < found.error < 0.2 == found.max_error
    assert (found.integers_us, found.float32_us, found.samples) == (1e6, 2e6, 3)
    named = {op.layer: op.precision for op in plan.ops if op.layer is not None}
    assert set(named) == {"left_sum", "last_sum"}
    assert main(["explain", path]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    saved = "integers 2 layers, saving 2.00 ms as estimated, 1.0 s in a race, float32 2.0 s"
    assert saved in lines
    assert any(line.startswith("off float32 ") and "allowed: at most 0.2" in line for line in lines)
    header = next(line for line in lines if line.startswith("op "))
    assert header.endswith("share µs saves µs noise source")


def test_the_report_says_that_float32_is_faster(monkeypatch, tmp_path, capsys):
    decide(monkeypatch, choices(left_sum=0.0), 3.0)
    path = str(tmp_path / "plain.so")
    with neocpu.compile_calibrated(network(), DATA) as compiled:
        assert compiled.integers == ()
        compiled.export(path)
    assert main(["explain", path]) == 0
    assert "none: 3.0 s in a race, float32 2.0 s" in capsys.readouterr().out


@needs.linker("aarch64")
def test_a_model_is_calibrated_once_for_several_cpus(monkeypatch, tmp_path):
    calls = []

    def counted(*arguments):
        calls.append("calibrate")
        return calibrate(*arguments)

    monkeypatch.setattr(module, "calibrate", counted)
    cpus = ("host:fp32", "cascadelake:int8", "rpi5:int8")
    parts = neocpu.compile_fat(
        *(network(), cpus, tmp_path / "any.so"),
        **{"calibration": DATA, "small": True, "threads": 2, "verify": False},
    )
    found = [
        {op.precision for op in part.compiled.plan.ops if op.kind == "conv2d"} for part in parts
    ]
    assert calls == ["calibrate"]
    assert found[0] == {"fp32"}
    assert parts[0].compiled.plan.calibration is None
    assert found[1] == {"int8"}
    assert len(parts[1].compiled.integers) >= 5
    x = image(9)
    wanted = run_onnxruntime(network(), x)
    np.testing.assert_allclose(neocpu.load(tmp_path / "any.so")(x), wanted, atol=1e-4)


RNG = np.random.default_rng(0)


def picture_network():
    """A convolution and its channels' means, of 12x16 pictures."""
    kernel = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        make_node("Conv", ["x", "kernel"], ["sums"]),
        make_node("GlobalAveragePool", ["sums"], ["means"]),
        make_node("Flatten", ["means"], ["y"]),
    ]
    return make_model(nodes, {"x": np.zeros((1, 3, 12, 16), np.float32)}, {"kernel": kernel})


def test_the_model_is_calibrated_and_the_artifact_takes_pictures():
    asked = Processing.parse(input="x=u8:nhwc:24x32", resize="12x16:stretch", outputs={"y": "top5"})
    data = list(RNG.standard_normal((4, 1, 3, 12, 16)))
    how = {"precision": "int8", "small": True, "processing": asked}
    with neocpu.compile_calibrated(picture_network(), data, **how) as compiled:
        (spec,) = compiled.header.inputs
        assert (spec.dtype, spec.shape) == ("uint8", (1, 24, 32, 3))
        assert [spec.name for spec in compiled.header.outputs] == ["y", "y.scores"]
        assert compiled.plan.calibration.layers
        assert compiled.plan.verification.kept
        with compiled.module() as module:
            found = module.run({"x": np.zeros(spec.shape, np.uint8)})
    assert found["y"].shape == (1, 5)


def test_pictures_for_calibration_are_prepared_as_the_artifact_prepares_them():
    how = QuantiseOptions(pictures=Preprocessing(fit="crop"))
    assert _with_artifact_pictures(how, Processing.parse()) is how
    given = {"input": "x=34x38", "mean": (0.1, 0.2, 0.3), "std": 2.0, "bgr": True}
    seen = _with_artifact_pictures(
        how, Processing.parse(**given, resize="17x19:letterbox")
    ).pictures
    assert seen == Preprocessing("letterbox", (0.1, 0.2, 0.3), (2.0,), bgr=True)
    assert _with_artifact_pictures(how, Processing.parse(**given)).pictures.fit == "crop"
