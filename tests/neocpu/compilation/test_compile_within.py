"""Float32 networks compiled with a limit on the error of their outputs."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_plans import small_plan

import neocpu
from neocpu.compilation import compile_within
from neocpu.compilation.compile_options import CompileOptions
from neocpu.compilation.compile_within import limited
from neocpu.compilation.read_model import read_network
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.foundation.progress import silent
from neocpu.plan.outcome import Promise
from neocpu.plan.text.tuning_summary import bfloat16_hint
from neocpu.planning.costs import CostModel
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target
from tests.neocpu.quantised_models import network, quantised

ZNVER4 = parse_target("llvm -mcpu=znver4")


def compiled(limit, **how):
    with neocpu.compile(network(), max_error=limit, threads=2, **how) as made:
        precisions = {op.name: op.precision for op in made.plan.ops}
        return made.plan, precisions, made.verification.norm_error


def test_bfloat16_is_used_if_the_error_limit_allows_it():
    plan, precisions, error = compiled(0.1)
    assert "bf16" in precisions.values()
    assert 1e-4 < error <= 0.1
    assert plan.accuracy == Promise(name="bfloat16", bound=2.0**-8, limit=0.1)


def test_leaves_layers_in_float32_where_all_err_too_much(caplog):
    _, whole, error = compiled(0.1)
    with caplog.at_level(logging.WARNING, "neocpu"):
        _, fewer, less = compiled(0.9 * error)
    assert less <= 0.9 * error
    count = sum(each == "bf16" for each in fewer.values())
    assert count < sum(each == "bf16" for each in whole.values())
    assert count or "compiled in float32" in caplog.text


class Made:
    """The result of a compilation in which each bfloat16 layer adds the same noise."""

    tuned = None

    def __init__(self, layers):
        self.verification = SimpleNamespace(norm_error=0.01 * math.sqrt(layers))
        self.decided = decided(1.0)

    def close(self):
        pass


def decided(seconds):
    """Return a plan of a copy and of eight layers; later layers take longer."""
    ops = [
        SimpleNamespace(name=f"conv_{i}", precision="bf16", flops=9, seconds=i * seconds)
        for i in range(8)
    ]
    copy = SimpleNamespace(name="concat_0", precision="bf16", flops=0, seconds=99 * seconds)
    return SimpleNamespace(ops=[copy, *ops])


@pytest.mark.parametrize(
    ("limit", "tried"), [(0.03, [None]), (0.025, [None, 4]), (0.012, [None, 1]), (0.005, [None, 0])]
)
def test_layers_that_save_least_return_to_float32_first(monkeypatch, limit, tried):
    found = []

    def made(model, members, options, progress):
        narrow = options.plan.narrow
        in_float = members[0].precision is Precision.FP32
        found.append(frozenset() if in_float else narrow)
        yield Made(0 if in_float else 8 if narrow is None else len(narrow))

    monkeypatch.setattr(compile_within, "compile_each", made)
    monkeypatch.setattr(compile_within, "plan_only", lambda *_: decided(3.0))
    options = limited(CompileOptions.parse(), limit)
    compile_within.compile_within("x", host_target(), options, silent)
    assert [None if names is None else len(names) for names in found] == tried
    last = {f"conv_{i}" for i in range(8 - (tried[-1] or 0), 8)}
    assert found[-1] is None or found[-1] == last, "those that save most stay"


def test_float32_is_used_if_the_limit_allows_nothing_else(caplog):
    with caplog.at_level(logging.WARNING, "neocpu"):
        plan, precisions, error = compiled(1e-5)
    assert set(precisions.values()) == {"fp32"}
    assert error < 1e-5
    assert plan.accuracy.name == "default"
    assert "bfloat16 errs more than --max-error 1e-05: compiled in float32" in caplog.text


def test_a_limit_below_the_error_of_float32_is_refused():
    with pytest.raises(AccuracyError, match=r"in float32, too, outputs err by .* max_error=1e-09"):
        compiled(1e-9)


def test_a_quantised_model_stays_quantised():
    model = quantised(network())
    with neocpu.compile(model, max_error=1e-2, threads=2, verify=False) as made:
        assert "bf16" not in {op.precision for op in made.plan.ops}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"max_error": 0.0}, "max_error must be above 0, got 0.0"),
        ({"max_error": float("nan")}, "max_error must be above 0, got nan"),
        ({"precision": "fp32"}, "allows bfloat16, and precision='fp32' does not"),
        ({"verify": False}, "held by running what is compiled: drop verify=False"),
    ],
    ids=str,
)
def test_impossible_requests_are_refused(how, why):
    with pytest.raises(UsageError, match=why):
        neocpu.compile(network(), **{"max_error": 1e-2, **how})


def test_a_host_that_cannot_run_the_code_is_an_error(monkeypatch):
    found = "neocpu.compilation.compile_within.code_obstacle"
    monkeypatch.setattr(found, lambda *_: "this host has no AVX9")
    with pytest.raises(UsageError, match="this host has no AVX9, or pass precision='bf16'"):
        neocpu.compile(network(), max_error=1e-2)


def test_several_cpus_need_data(tmp_path):
    with pytest.raises(UsageError, match="for several CPUs needs data"):
        neocpu.compile_fat(network(), ("avx2", "avx512"), tmp_path / "fat.so", max_error=1e-2)


def test_only_operators_that_are_named_may_be_narrow():
    read = read_network(network())
    first, *others = read.computing(Precision.BF16, ZNVER4, narrow={read.convs[0].name}).convs
    assert first.forms
    assert not any(conv.forms for conv in others)


def test_small_leaves_no_choice():
    """Integers or bfloat16 then replace float32 altogether."""
    costs = CostModel(target=ZNVER4, threads=1, measured=None)
    for model, precision in ((network(), "bf16"), (quantised(network()), "int8")):
        options = CompileOptions.parse(precision=precision, small=True).plan
        convs = options.allowing(read_network(model), costs).convs
        assert convs
        assert not any(conv.in_float for conv in convs)
        assert all(conv.in_float for conv in read_network(model).convs)


class TestHint:
    PLAN = small_plan(predicted_us=9000.0, bfloat16_saves_us=3000.0)

    def test_bfloat16_is_offered_if_it_is_much_faster(self):
        assert bfloat16_hint(self.PLAN).startswith("about 1.5 times as fast with --max-error 1e-2")

    @pytest.mark.parametrize("saves", [0.0, 1400.0, 9000.0])
    def test_bfloat16_is_not_offered_if_it_is_not_much_faster(self, saves):
        assert bfloat16_hint(replace(self.PLAN, bfloat16_saves_us=saves)) is None

    @pytest.mark.parametrize(
        "change", [{"unchecked": "--no-verify"}, {"accuracy": Promise(name="strict", bound=5e-6)}]
    )
    def test_bfloat16_is_not_offered_if_it_is_refused(self, change):
        assert bfloat16_hint(replace(self.PLAN, **change)) is None


def test_a_plan_in_float32_knows_what_bfloat16_would_save():
    saves = {}
    for precision in ("auto", "fp32"):
        how = {"precision": precision, "target": ZNVER4, "verify": False, "threads": 2}
        with neocpu.compile("resnet18", **how) as made:
            saves[precision] = made.plan.bfloat16_saves_us / made.plan.predicted_us
    assert saves["auto"] > 0.2
    assert saves["fp32"] == 0, "who asks for float32 wants no hint"
