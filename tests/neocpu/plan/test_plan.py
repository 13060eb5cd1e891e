"""The plan of a model, and its JSON form."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from small_plans import small_kernel, small_operator, small_plan, small_transform, verified

from neocpu.foundation.json_codec import JsonFormError
from neocpu.plan.kernels import KernelShortcoming
from neocpu.plan.model_values import ModelValue
from neocpu.plan.operators import (
    Alternative,
    ExactSums,
    PlannedNumerics,
    PlannedQuantisation,
    PlannedScheme,
)
from neocpu.plan.outcome import (
    AppliedRules,
    BrokenPromise,
    CalibratedLayer,
    Calibration,
    PhaseTime,
    Promise,
)
from neocpu.plan.plan import Plan

PAGES = Path(__file__).parents[3] / "docs" / "pages"
SCHEME = PlannedScheme(template="conv2d_direct", parameters={"ic_bn": 16, "unroll_ker": True})
WHOLE = small_plan(
    streams=2,
    goal="throughput",
    accuracy=Promise(name="bfloat16", bound=0.01, limit=0.1),
    ops=(
        small_operator(
            "conv2d_0",
            scheme=SCHEME,
            weight_bytes=640,
            numerics=PlannedNumerics(
                data="uint8",
                weights="int8",
                sum="int32",
                output="float32",
                quantised={"data": PlannedQuantisation(granularity="tensor", symmetric=False)},
                int16_sums=2,
            ),
            proof=ExactSums(largest_sum=100, limit=128),
            cost_day="2026-11-23",
            predicted_us=12.0,
            share=0.5,
            alternatives=(
                Alternative(
                    scheme=SCHEME,
                    in_layout="NCHW",
                    out_layout="NCHW16c",
                    cost_us=11.0,
                    cost_source="estimated",
                    transforms_us=1.0,
                    weights_us=0.0,
                    more_us=2.0,
                ),
            ),
            layer="Conv_0",
        ),
        small_operator("pool_1", kernel=None),
    ),
    transforms=(small_transform(),),
    kernels=(
        small_kernel(
            "conv2d_0",
            lacks=(KernelShortcoming(kind="scalar", detail="x", reason="", cost_us=1.0),),
        ),
    ),
    values=(
        ModelValue(name="y", calls=1, offset=0, dtype="float32", shape=(1, 16, 2, 2), block=8),
    ),
    calibration=Calibration(
        layers=(CalibratedLayer(name="Conv_0", saved_us=1.0, noise=0.1),),
        max_error=0.1,
        min_agreement=None,
        error=0.05,
        agreement=None,
        samples=8,
        integers_us=None,
        float32_us=None,
        excess="too much",
    ),
    processing=("resized",),
    processing_options={"outputs": {"y": "softmax"}},
    models=("sha256:1",),
    rules=AppliedRules(applied={"fold-scale": 2}, disabled=("merge-casts",)),
    passes=(PhaseTime(name="import", seconds=0.1),),
    verification=verified(None),
    missed=(BrokenPromise(admission="with Winograd", verification=verified(0.1)),),
    call_seconds=0.25,
    launches=(("conv2d_0", "pool_1"),),
)


@pytest.mark.parametrize("plan", [small_plan(), WHOLE], ids=["small", "whole"])
def test_a_written_plan_is_read_back(plan):
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_plans_of_artifacts_are_written_as_they_were_read():
    pattern = r'<script type="application/json" id="data">(.*?)</script>'
    (data,) = re.findall(pattern, (PAGES / "resnet50.html").read_text())
    stored = json.loads(data)["plan"]
    written = Plan.from_json(stored).to_json()
    # The pages are older than a few members, which have their defaults.
    assert {key: written[key] for key in stored if key != "kernels"} == {
        key: stored[key] for key in stored if key != "kernels"
    }
    assert [key for key in written if key in stored] == list(stored)
    for one, other in zip(written["kernels"], stored["kernels"], strict=True):
        assert one.items() >= other.items()


def test_members_that_say_nothing_are_left_out():
    found = small_plan(ops=(small_operator("pool_0"),)).to_json()
    assert not found.keys() & {"version", "call_seconds", "launches"}
    left_out = {"weight_bytes", "numerics", "proof", "cost_day", "layer"}
    assert not found["ops"][0].keys() & left_out
    assert found["accuracy"].keys() == {"name", "bound"}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"version": 2}, "version"),
        ({"target": None}, "target"),
        ({"ops": [5]}, r"ops\[0\]"),
        ({"ops": [{"name": "a"}]}, r"ops\[0\].kind"),
        ({"values": [["y", 1, -1, "float32", [1]]]}, r"values\[0\]"),
        ({"missed": [{"kept": True}]}, r"missed\[0\]"),
        ({"weights": {"given_bytes": 1.5}}, "weights.given_bytes"),
    ],
)
def test_json_that_is_no_plan_is_refused_with_the_place(change, place):
    with pytest.raises(JsonFormError, match=f"^{place}"):
        Plan.from_json({**small_plan().to_json(), **change})
    with pytest.raises(JsonFormError):
        Plan.from_json([])


def test_convolutions_are_counted_by_their_numbers():
    names = ("fp32", "int8", "int8")
    ops = [small_operator(f"conv2d_{i}", precision=name) for i, name in enumerate(names)]
    plan = small_plan(ops=(*ops, small_operator("pool_3")))
    assert list(plan.computes_in.items()) == [("int8", 2), ("fp32", 1)]
    assert [op.name for op in plan.convolutions] == ["conv2d_0", "conv2d_1", "conv2d_2"]


def test_schemes_show_flags_by_name():
    assert str(SCHEME) == "direct ic_bn=16 unroll_ker"
    assert str(replace(SCHEME, parameters={"unroll_ker": False})) == "direct"
    assert SCHEME.algorithm == "direct"
