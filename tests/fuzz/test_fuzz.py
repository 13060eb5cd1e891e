"""Generated models are compiled right, or refused in one line.

`make fuzz` runs more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import needs
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import helper

from neocpu.verification.reference.runner import run_reference
from tests.fuzz.case import Case
from tests.fuzz.choices import Choices
from tests.fuzz.explore import make_case
from tests.fuzz.generate import generate
from tests.fuzz.pool import Pool
from tests.fuzz.run_case import _hangs_on_rounding, run_peer
from tests.neocpu.frontend.onnx_models import onnx_model


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


@pytest.mark.slow
@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100 if needs.EVERYTHING else 25,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(st.randoms(use_true_random=False))
def test_any_model(pool: Pool, rng: Random) -> None:
    case = make_case(Choices(rng))
    outcome, _ = pool.run(case)
    assert not outcome.failed, f"{outcome}\n{case.origin}\n{printed(case.model)}"


def printed(model: onnx.ModelProto) -> str:
    """Return a model as text, or by its bytes if it is broken in a way that onnx cannot print."""
    try:
        return onnx.printer.to_text(model)
    except Exception as error:  # onnx raises several kinds
        return f"{error}: {model.SerializeToString()!r}"


def test_models_without_data_are_not_checked(pool: Pool) -> None:
    text = """<ir_version: 10, opset_import: ["" : 7]>
    fuzzed (bfloat16[1,1,1] x) => (float[1,1,1] y) <float[1,1,1] w = {1.5}>
    { y = Conv <kernel_shape: ints = [1]> (x, w) }"""
    outcome, _ = pool.run(Case(onnx.parser.parse_model(text), {}, "x is bfloat16"))
    assert outcome.kind == "unchecked"


def test_random_graphs_are_mostly_legal() -> None:
    cases = [generate(Choices(Random(seed))) for seed in range(60)]
    accepted = [case for case in cases if not isinstance(run_peer(case.model, case.feeds), str)]
    assert len(accepted) > 0.8 * len(cases)
    names = {node.op_type for case in accepted for node in case.model.graph.node}
    assert len(names) > 50


def test_results_rounded_after_scaling_by_their_maximum_depend_on_rounding():
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Div", ["x", "most"], ["share"]),
        helper.make_node("Mul", ["share", "five"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [3]}, {"y": [3]}, {"five": np.float32(5)})
    for x, hangs in (([1.0, 2.0, 4.0], True), ([1.0, 3.0, 4.0], False)):
        feeds = {"x": np.array(x, np.float32)}
        truth = run_reference(model, feeds, double=True)
        assert _hangs_on_rounding(model, feeds, truth, []) == hangs


def test_integers_at_the_middle_between_two_steps_hang_on_rounding():
    """The sum of 40 products of 0.05 and 0.05 is half a step of 0.2."""
    constants = {"scale": np.float32(0.05), "step": np.float32(0.2), "zero": np.uint8(0)}
    constants["w"] = np.ones((40, 1), np.uint8)
    numbers = ["scale", "zero"]
    inputs = ["x", *numbers, "w", *numbers, "step", "zero"]
    nodes = [
        helper.make_node("QLinearMatMul", inputs, ["stored"]),
        helper.make_node("Identity", ["stored"], ["y"]),
    ]
    byte = onnx.TensorProto.UINT8
    model = onnx_model(nodes, {"x": (byte, [1, 40])}, {"y": (byte, [1, 1])}, constants)
    for x, hangs in ((1, True), (2, False)):
        feeds = {"x": np.full((1, 40), x, np.uint8)}
        truth = run_reference(model, feeds, double=True)
        assert _hangs_on_rounding(model, feeds, truth, []) == hangs
