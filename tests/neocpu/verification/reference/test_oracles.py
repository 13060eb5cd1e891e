"""Another engine verifies a model that numpy cannot run, or not within the limit of time."""

import numpy as np
import pytest
from onnx import helper

import neocpu
from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.numpy_operators.fast_operators import Softmax
from neocpu.schedules.vocabulary.accuracy import DEFAULT, STRICT
from neocpu.verification.reference import oracles, runner, verification
from neocpu.verification.reference.oracles import predicted_seconds
from neocpu.verification.reference.runner import run_reference
from neocpu.verification.reference.verification import (
    DOUBTFUL_RUNS,
    FLOAT32_RUNS,
    LEAST_RUNS,
    Verifier,
)
from tests.neocpu.frontend.control_flow.control_flow_models import parsed
from tests.neocpu.frontend.differential import make_model, random, run_onnxruntime
from tests.neocpu.frontend.onnx_models import graph_model

FEEDS = {"x": random(2, 37)}
MODEL = make_model([helper.make_node("Softmax", ["x"], ["y"])], FEEDS)
RIGHT = run_reference(MODEL, FEEDS)


def failing(monkeypatch, *types):
    """Have the reference fail at numbers of these types."""
    run = Softmax._run

    def refuse(self, x, **attrs):
        if x.dtype in types:
            raise NotImplementedError(f"no {x.dtype}\nat all")
        return run(self, x, **attrs)

    monkeypatch.setattr(Softmax, "_run", refuse)


def test_float64_is_the_best_truth():
    truth = oracles.find_truth(MODEL, FEEDS)
    assert (truth.oracle.name, truth.oracle.reason) == (oracles.REFERENCE, "")
    assert truth.outputs["y"].dtype == np.float64


def test_float32_is_next(monkeypatch):
    failing(monkeypatch, np.float64)
    truth = oracles.find_truth(MODEL, FEEDS)
    assert truth.oracle.name == oracles.SINGLE
    assert truth.oracle.reason == "numpy in float64: no float64"
    np.testing.assert_allclose(truth.outputs["y"], run_onnxruntime(MODEL, FEEDS)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("level", "error", "accepted"), [(DEFAULT, 1e-6, True), (STRICT, 1, False)]
)
def test_onnxruntime_is_the_last(monkeypatch, level, error, accepted):
    failing(monkeypatch, np.float64, np.float32)
    verifier = Verifier(MODEL, FEEDS, level)
    expected = run_onnxruntime(MODEL, FEEDS)[0]
    verdict = verifier.judge({"y": expected * np.float32(1 + error)})
    assert verdict.is_accepted == accepted
    assert verdict.oracle.startswith("ONNX Runtime 1.")
    assert verdict.reason == "numpy in float64: no float64; numpy in float32: no float32"
    if not accepted:
        assert f"differs from {verdict.oracle} by" in verifier.reason(verdict)


def test_a_batch_is_compared_image_by_image(monkeypatch):
    failing(monkeypatch, np.float64, np.float32)
    one = make_model([helper.make_node("Softmax", ["x"], ["y"])], {"x": FEEDS["x"][:1]})
    truth = oracles.find_truth(one, FEEDS)
    np.testing.assert_allclose(truth.outputs["y"], run_onnxruntime(MODEL, FEEDS)[0], rtol=1e-6)


def test_the_message_says_what_to_do_if_no_oracle_works(monkeypatch):
    failing(monkeypatch, np.float64, np.float32)

    def version():
        raise ImportError

    monkeypatch.setattr(oracles.onnxruntime_oracle, "version", version)
    with pytest.raises(AccuracyError, match=r"install onnxruntime .*verify=False") as refused:
        oracles.find_truth(MODEL, FEEDS)
    assert "no float64; numpy in float32: no float32" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_control_flow_is_run_in_float64_too():
    model = graph_model(
        """(float[2, 37] x) => (float[2, 37] y) {
            m = ReduceMax<keepdims = 0>(x) b = Cast<to = 9>(m)
            y = If(b) <then_branch = t () => (float[2, 37] s) { s = Sin(x) },
                else_branch = e () => (float[2, 37] c) { c = Cos(x) }> }"""
    )
    truth = oracles.find_truth(model, FEEDS)
    assert truth.oracle.name == oracles.REFERENCE
    assert not truth.oracle.reason
    np.testing.assert_allclose(truth.outputs["y"], np.sin(FEEDS["x"].astype(float)), rtol=1e-12)


def test_the_compilation_names_its_oracle(monkeypatch, tmp_path):
    failing(monkeypatch, np.float64)
    path = tmp_path / "m.so"
    neocpu.compile(MODEL).export(path)
    from neocpu.plan.text.plan_text import error_text
    from neocpu.runtime.artifact import read_header

    plan = read_header(path).plan
    assert plan.verification.oracle == oracles.SINGLE
    text = error_text(plan)
    assert text.endswith("against numpy in float32 (numpy in float64: no float64)")
    assert runner.run_reference(MODEL, FEEDS)["y"].dtype == np.float32


@pytest.fixture
def runs(monkeypatch):
    """Return the settings of each run of the reference, which is predicted to take 100 s."""
    asked = []

    def run(model, inputs, **how):
        asked.append(how)
        return run_reference(model, inputs, **how)

    monkeypatch.setattr(oracles, "predicted_seconds", lambda model, images, shapes: 100.0 * images)
    monkeypatch.setattr(oracles, "run_reference", run)
    return asked


def test_slow_references_run_in_float32(runs):
    verifier = Verifier(MODEL, FEEDS, DEFAULT)
    for _ in range(2):  # of two artifacts, say
        verdict = verifier.judge(RIGHT, patience=60)
        assert verdict.kept
        assert verdict.oracle == oracles.SINGLE
        assert verdict.reason == "numpy in float64 would take about 1 min 40 s"
    assert runs == [{}]


def test_very_slow_references_are_replaced_by_onnxruntime(runs):
    verdict = Verifier(MODEL, FEEDS, DEFAULT).judge(RIGHT, patience=10)
    assert verdict.kept
    assert verdict.oracle.startswith("ONNX Runtime")
    assert not runs


def test_slow_references_run_in_float32_without_onnxruntime(runs, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(oracles.onnxruntime_oracle, "run_onnxruntime", fail)
    assert Verifier(MODEL, FEEDS, DEFAULT).judge(RIGHT, patience=10).oracle == oracles.SINGLE


def test_every_image_counts(runs):
    one = make_model([helper.make_node("Softmax", ["x"], ["y"])], {"x": FEEDS["x"][:1]})
    assert Verifier(one, FEEDS, DEFAULT).judge(RIGHT, patience=150).oracle == oracles.SINGLE


def test_models_are_not_refused_by_a_quick_comparison(runs):
    wrong = {"y": RIGHT["y"] * np.float32(1.01)}
    verdict = Verifier(MODEL, FEEDS, DEFAULT).judge(wrong, patience=60)
    assert not verdict.is_accepted
    assert (verdict.oracle, verdict.reason) == (oracles.REFERENCE, "")


@pytest.mark.parametrize(("level", "patience"), [(STRICT, 1), (DEFAULT, 100)])
def test_fast_or_strict_comparisons_use_float64(runs, level, patience):
    verdict = Verifier(MODEL, FEEDS, level).judge(RIGHT, patience)
    assert verdict.kept
    assert verdict.oracle == oracles.REFERENCE
    assert runs == [{"double": True}]


@pytest.mark.parametrize(
    ("patience", "expected"), [(1e9, DOUBTFUL_RUNS), (6.5, 10), (0, LEAST_RUNS)]
)
def test_doubts_take_no_longer_either(monkeypatch, patience, expected):
    asked = []

    def counted(model, inputs, **how):
        asked.append(how)
        return run_reference(model, inputs, **how)

    monkeypatch.setattr(oracles, "run_reference", counted)
    monkeypatch.setattr(verification, "find_quick_truth", lambda *_: None)
    ticks = iter(range(1000))
    verifier = Verifier(MODEL, FEEDS, DEFAULT, clock=lambda: float(next(ticks)))
    assert not verifier.judge({"y": RIGHT["y"] + 1}, patience).is_accepted
    assert len(asked) == 1 + FLOAT32_RUNS + expected


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "products"),
    [
        ("Conv", [(2, 6, 9, 7), (4, 3, 3, 2)], {"group": 2}, 2 * 4 * 7 * 6 * 3 * 3 * 2),
        ("ConvTranspose", [(1, 3, 4, 5), (3, 2, 2, 2)], {}, 3 * 4 * 5 * 2 * 2 * 2),
        ("MatMul", [(2, 3, 5), (5, 7)], {}, 2 * 3 * 5 * 7),
        ("Gemm", [(5, 3), (5, 7)], {"transA": 1}, 3 * 5 * 7),
        ("Add", [(5, 7), (5, 7)], {}, 0),
    ],
)
def test_products_are_counted(monkeypatch, op, shapes, attributes, products):
    monkeypatch.setattr(oracles, "SECONDS", 1.0)
    feeds = {name: random(*shape) for name, shape in zip("xw", shapes, strict=True)}
    model = make_model([helper.make_node(op, ["x", "w"], ["y"], **attributes)], feeds)
    assert predicted_seconds(model, 3) == 3 * products


def test_products_of_computed_shapes_count_where_these_are_known(monkeypatch):
    """PyTorch's old exporter writes ``x.view(x.size(0), -1)``."""
    monkeypatch.setattr(oracles, "SECONDS", 1.0)
    model = parsed("""
g (float[2, 3, 5] x, int64[2] shape, float[15, 7] w) => (float[2, 7] y) {
  flat = Reshape(x, shape)
  y = MatMul(flat, w)
}""")
    assert predicted_seconds(model) == 0
    assert predicted_seconds(model, known={"flat": (2, 15)}) == 2 * 15 * 7
