"""Another engine verifies a model that numpy cannot run, and the report names it."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import neocpu
from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.numpy_operators.fast_operators import Softmax
from neocpu.schedules.vocabulary.accuracy import DEFAULT, STRICT
from neocpu.verification.reference import oracles, runner
from neocpu.verification.reference.verification import Verifier
from tests.neocpu.frontend.differential import make_model, random, run_onnxruntime

FEEDS = {"x": random(2, 37)}
MODEL = make_model([helper.make_node("Softmax", ["x"], ["y"])], FEEDS)


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
    def branch(op):
        made = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [made])

    whether = {"then_branch": branch("Sin"), "else_branch": branch("Cos")}
    model = make_model(
        [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["b"], to=TensorProto.BOOL),
            helper.make_node("If", ["b"], ["y"], **whether),
        ],
        FEEDS,
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
