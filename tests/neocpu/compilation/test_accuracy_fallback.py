"""A plan that breaks its promise is followed by more exact ones; only wrong answers are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import onnx
import pytest
from float_models import float_model
from onnx import helper

import neocpu
from neocpu import pipeline
from neocpu.cli.main import main
from neocpu.compilation import accuracy_fallback as descent
from neocpu.compilation.accuracy_fallback import next_admissions, tell
from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.planning.choice import Measured
from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions.winograd import conv2d_winograd
from neocpu.schedules.vocabulary.accuracy import (
    DEFAULT,
    EVERY_TILE,
    NO_TILES,
    SHORT_SUMS,
    SMALL_TILES,
    STRICT,
)
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.verification.reference.comparison import Comparison, Verdict
from neocpu.verification.reference.verification import Verifier


def verdict(norm: float, *, ok: bool = True, kept: bool = False, single: float = 1e-6) -> Verdict:
    found = Comparison(
        max_abs_error=norm, max_rel_error=norm, norm_error=norm, worst_output="y", ok=ok
    )
    return Verdict(found, kept, single)


@pytest.mark.parametrize(
    ("admission", "found", "expected"),
    [
        (EVERY_TILE, verdict(1e-6, kept=True), ()),
        (EVERY_TILE, verdict(4e-4), (SMALL_TILES, NO_TILES, SHORT_SUMS)),
        (EVERY_TILE, verdict(4e-4, ok=False), (SMALL_TILES, NO_TILES, SHORT_SUMS)),
        (SMALL_TILES, verdict(4e-4), (NO_TILES, SHORT_SUMS)),
        (NO_TILES, verdict(4e-4), (SHORT_SUMS,)),
        (SHORT_SUMS, verdict(4e-4), ()),
        # Float32 itself is no better.
        (EVERY_TILE, verdict(4e-4, single=2e-4), (SHORT_SUMS,)),
        # A wrong answer, one wrong element, and NaN.
        (EVERY_TILE, verdict(0.7, ok=False), (SHORT_SUMS,)),
        (EVERY_TILE, verdict(1e-7, ok=False), (SHORT_SUMS,)),
        (EVERY_TILE, verdict(math.inf, ok=False), (SHORT_SUMS,)),
        (SHORT_SUMS, verdict(0.7, ok=False), ()),
    ],
)
def test_the_next_attempts_follow_from_the_errors_found(admission, found, expected):
    assert tuple(next_admissions(admission, found, DEFAULT)) == expected


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (
            [(EVERY_TILE, verdict(4e-4)), (NO_TILES, verdict(3e-6, kept=True))],
            "outputs err by 0.0004 with Winograd tiles of any size, more than the 0.0001 promised: "
            "compiled again without Winograd and Strassen, now by 3e-06",
        ),
        (
            [(EVERY_TILE, verdict(0.5, ok=False)), (SHORT_SUMS, verdict(3e-6, kept=True))],
            "output 'y' was wrong by 0.5 with Winograd tiles of any size, please report this "
            "model: compiled again without Winograd and Strassen, with sums in parts, now by 3e-06",
        ),
        (
            [(EVERY_TILE, verdict(0.5)), (SHORT_SUMS, verdict(math.inf, single=math.inf))],
            "outputs err by 0.5 with Winograd tiles of any size, more than the 0.0001 promised: "
            "compiled again without Winograd and Strassen, with sums in parts, now beyond measure; "
            "numpy in float32 errs beyond measure, so that no plan errs much less",
        ),
        (
            [(SHORT_SUMS, verdict(4e-4, single=2e-4))],
            "outputs err by 0.0004 without Winograd and Strassen, with sums in parts, more than "
            "the 0.0001 promised: numpy in float32 errs by 0.0002, so that no plan errs much less",
        ),
    ],
    ids=["rounding", "wrong", "undecided", "alone"],
)
def test_a_verdict_is_reported_in_one_line(judged, expected):
    assert tell(judged, DEFAULT) == expected


def test_strict_has_nothing_stricter():
    assert not next_admissions(SHORT_SUMS, verdict(6e-6), STRICT)


@pytest.mark.parametrize(("error", "enough"), [(3.9e-4, True), (4.1e-4, False)])
def test_float32_excuses_a_small_multiple_of_its_own_error(error, enough):
    assert verdict(error, single=1e-4).as_exact_as_float32 is enough
    assert not verdict(error, ok=False, single=1e-4).as_exact_as_float32


def network(channels: int = 64) -> onnx.ModelProto:
    net = NetworkBuilder("net", (1, channels, 24, 24), seed=0)
    return net.finish(net.conv(net.input, "conv1", 16, 3, padding=1))


@pytest.fixture
def winograd_first(monkeypatch):
    """Let every plan choose Winograd's largest tiles, as long as it may."""

    def measured(store, target, threads, workload, keep):
        if not isinstance(workload, Conv2dWorkload):
            return Measured({})
        schemes = registry.schemes(workload, target)
        return Measured(
            {s: 1e-3 / s.tile if isinstance(s, WinogradScheme) else 1e-2 for s in schemes}
        )

    monkeypatch.setattr("neocpu.compilation.compile_each.measured_schemes", measured)


@pytest.fixture
def builds(monkeypatch):
    """Count what is compiled."""
    counted = []
    build = pipeline.begin_build

    def counting(*arguments):
        counted.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(pipeline, "begin_build", counting)
    return counted


def damage(monkeypatch, module, change):
    """Let a template's kernels compute with other weights."""
    template = module.TEMPLATE

    def packed(weights, workload, scheme):
        return template.pack_weights(change(weights, scheme), workload, scheme)

    damaged = replace(template, pack_weights=packed)
    monkeypatch.setitem(registry.TEMPLATES, template.name, damaged)


def noisy(weights, relative):
    noise = np.random.default_rng(0).standard_normal(weights.shape)
    return (weights * (1 + relative * noise)).astype(weights.dtype)


def tiles(plan):
    return {op.scheme.parameters.get("tile", 0) for op in plan.ops if op.scheme}


def test_a_plan_that_keeps_its_promise_is_compiled_once(winograd_first, builds, caplog):
    with neocpu.compile(network(), threads=1) as compiled:
        plan = compiled.plan
    assert max(tiles(plan)) > 4
    assert (plan.missed, plan.admission, len(builds)) == ((), EVERY_TILE.name, 1)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("large", "small", "expected"),
    [(1, 0, SMALL_TILES), (1, 1, NO_TILES)],
    ids=["small-tiles", "no-tiles"],
)
def test_rounding_descends_step_by_step(
    monkeypatch, caplog, tmp_path, winograd_first, builds, large, small, expected
):
    def change(weights, scheme):
        return noisy(weights, 4e-4 * (large if scheme.tile > 4 else small))

    damage(monkeypatch, conv2d_winograd, change)
    with neocpu.compile(network(), threads=1) as compiled:
        compiled.export(tmp_path / "net.so")
        plan, found = compiled.plan, compiled.verification
    assert found.norm_error < 1e-6
    assert plan.admission == expected.name
    assert len(builds) == 1 + large + small
    assert [each.admission for each in plan.missed] == [EVERY_TILE.name, SMALL_TILES.name][
        : len(builds) - 1
    ]
    assert all(1e-4 < each.verification.norm_error < 1e-3 for each in plan.missed)
    assert all(0 < each.verification.float32_error < 1e-6 for each in plan.missed)
    (line,) = caplog.messages
    assert "more than the 0.0001 promised: compiled again " + expected.name in line
    assert max(tiles(plan)) <= (4 if expected is SMALL_TILES else 0)
    with neocpu.load(tmp_path / "net.so") as module:
        assert module.metadata.plan.missed == plan.missed


def test_a_wrong_template_is_left_out_and_reported(
    monkeypatch, caplog, tmp_path, winograd_first, builds
):
    damage(monkeypatch, conv2d_winograd, lambda weights, scheme: weights * np.float32(1.5))
    onnx.save(network(), tmp_path / "mine.onnx")
    with neocpu.compile(tmp_path / "mine.onnx", threads=1) as compiled:
        assert compiled.header.name == "mine"
        assert compiled.verification.norm_error < 1e-6
        assert compiled.plan.admission == SHORT_SUMS.name
    (line,) = caplog.messages
    assert "please report this model" in line
    assert len(builds) == 2


def test_one_wrong_element_is_a_wrong_template(monkeypatch, caplog, winograd_first, builds):
    right = descent._outputs

    def outputs(*arguments):
        (name, values), *_ = right(*arguments).items()
        if len(builds) == 1:
            values.flat[np.argmin(np.abs(values))] += 0.005 * values.std()
        return {name: values}

    monkeypatch.setattr(descent, "_outputs", outputs)
    with neocpu.compile(network(), threads=1) as compiled:
        assert compiled.verification.ok
        assert compiled.plan.missed[0].verification.norm_error < DEFAULT.bound
    assert len(builds) == 2
    assert "please report this model" in caplog.text


def test_a_model_that_every_plan_computes_wrongly_is_refused(monkeypatch, winograd_first, builds):
    for template in (conv2d_winograd, conv2d_direct):
        damage(monkeypatch, template, lambda weights, scheme: weights * np.float32(1.5))
    with pytest.raises(AccuracyError, match=r"differs from the reference by.*please report"):
        neocpu.compile(network(), threads=1)
    assert len(builds) == 2


def test_a_plan_is_not_compiled_twice(monkeypatch, builds):
    """The model has few products and no tiles, so all plans are equal."""
    damage(monkeypatch, conv2d_direct, lambda weights, scheme: noisy(weights, 4e-4))
    with pytest.raises(AccuracyError, match="numpy in float32 by"):
        neocpu.compile(network(8), threads=1, algorithms=["direct"])
    assert len(builds) == 1


def test_failed_attempts_leave_nothing_behind(monkeypatch, tmp_path, winograd_first):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    damage(monkeypatch, conv2d_winograd, lambda weights, scheme: noisy(weights, 4e-4))
    with neocpu.compile(network(), threads=1, batch=2) as compiled:
        assert compiled.header.inputs[0].shape[0] == 2
        assert compiled.plan.missed
        assert list(tmp_path.iterdir()) == [compiled.path.parent]
    assert not list(tmp_path.iterdir())


def cancelling() -> onnx.ModelProto:
    """A model that adds and subtracts 64,000: float32 keeps three digits."""
    nodes = [
        helper.make_node("MatMul", ["x", "eye"], ["large"]),
        helper.make_node("Add", ["large", "offset"], ["both"]),
        helper.make_node("Relu", ["both"], ["positive"]),  # or the products became one
        helper.make_node("MatMul", ["positive", "eye"], ["same"]),
        helper.make_node("Sub", ["same", "offset"], ["y"]),
    ]
    constants = {"eye": np.eye(64, dtype="f"), "offset": np.float32(64_000)}
    return float_model("cancelling", nodes, {"x": (64, 64)}, {"y": (64, 64)}, constants)


@pytest.fixture
def cancelling_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(cancelling(), "cancelling.onnx")
    return "cancelling.onnx"


def test_a_model_beyond_float32_is_written_with_a_warning(
    cancelling_file, capsys, monkeypatch, caplog
):
    with neocpu.compile(cancelling_file, threads=1) as compiled:
        plan = compiled.plan
    found = plan.verification
    assert not found.kept
    assert DEFAULT.bound < found.norm_error < 4 * found.float32_error
    (line,) = caplog.messages
    assert f"{found.norm_error:.2g}" in line
    assert f"numpy in float32 errs by {found.float32_error:.2g}" in line

    assert main(["compile", cancelling_file, "-o", "c.so"]) == 0
    outcome = capsys.readouterr()
    assert "numpy in float32" in outcome.out
    assert main(["explain", "c.so"]) == 0
    assert "numpy in float32" in capsys.readouterr().out
    assert main(["explain", "c.so", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verification"]["kept"] is False


def test_a_stricter_plan_that_is_worse_does_not_undo_an_accepted_one(
    monkeypatch, caplog, winograd_first
):
    verdicts = [verdict(3e-4, single=2e-4), verdict(9e-4, single=2e-4)]
    monkeypatch.setattr(Verifier, "judge", lambda verifier, outputs, patience: verdicts.pop(0))
    with neocpu.compile(network(), threads=1) as compiled, compiled.module() as module:
        plan = compiled.plan
        module(*(np.zeros(spec.shape, spec.dtype) for spec in module.inputs))
    assert not verdicts
    assert max(tiles(plan)) > 4
    assert [one.verification.norm_error for one in plan.missed] == [9e-4]
    assert "now by 0.0003" in caplog.messages[0]


def test_errors_larger_than_those_of_float32_are_refused(monkeypatch, cancelling_file):
    right = descent._outputs

    def rougher(*arguments):
        return {name: noisy(y, 4e-3) for name, y in right(*arguments).items()}

    monkeypatch.setattr(descent, "_outputs", rougher)
    with pytest.raises(AccuracyError, match=r"accuracy='default'.*numpy in float32 by"):
        neocpu.compile(cancelling_file, threads=1)
