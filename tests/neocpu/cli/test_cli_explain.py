"""``neocpu explain``, of one artifact and of two."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import pytest
from page_sections import parts_in
from small_plans import small_plan

import neocpu
from neocpu.bench.limits import roofline
from neocpu.bench.limits.roofline import Limits
from neocpu.building.link import write_artifact
from neocpu.plan.plan import Plan
from neocpu.plan.text import plan_comparison
from neocpu.runtime.artifact import read_header

OP = {
    "name": "conv2d_0",
    "kind": "conv2d",
    "workload": "1x3x16x16 -> 8, 3x3",
    "flops": 100,
    "scheme": {"template": "conv2d_direct", "ic_bn": 3, "oc_bn": 8, "unroll_ker": True},
    "in_layout": "NCHW[3]c",
    "out_layout": "NCHW[8]c",
    "cost_us": 12.34,
    "cost_source": "measured",
    "kernel": "conv2d_0",
}
TRANSFORM = {
    "from": "NCHW",
    "to": "NCHW[3]c",
    "shape": [1, 3, 16, 16],
    "kernel": None,
    "cost_us": 1.5,
    "cost_source": "measured",
}
PLAN: dict[str, Any] = {
    "target": "llvm -mcpu=znver5",
    "threads": 2,
    "opt": "global",
    "accuracy": {"name": "strict", "bound": 5e-6},
    "admission": "without Winograd and Strassen",
    "predicted_us": 25.0,
    "weights": {"given_bytes": 47 * 10**6, "packed_bytes": 1034 * 10**5, "limit_bytes": 12 * 10**7},
    "activation_bytes": 6_100_000,
    "search": {
        "solver": "exact",
        "cost_us": 22.0,
        "lower_bound_us": 20.0,
        "gap": 0.1,
        "verdict": "not proven optimal: at most 10 % above the best plan; raise --search-seconds",
        "seconds": 0.5,
        "variables": 3,
        "levels_us": {"nchw": 60.0, "uniform": 30.0},
    },
    "ops": [OP, {**OP, "name": "relu_1", "kind": "relu", "scheme": None}],
    "transforms": [TRANSFORM, TRANSFORM],
    "passes": [],
    "verification": {
        "kept": True,
        "max_abs_error": 1.5e-5,
        "max_rel_error": 2.5e-6,
        "norm_error": 1.2e-6,
    },
}


@pytest.fixture
def explained(linear):
    """An artifact with a known plan, for a machine this one is not."""
    header = replace(linear.header, stored_plan=PLAN, isa_features=("avx99",))
    write_artifact(linear.built, linear.weights, header, "net.so")
    return Path("net.so")


def test_text(cli, explained):
    outcome = cli("explain", explained).succeeds()
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    verdict = "not proven optimal: at most 10 % above the best plan; raise --search-seconds"
    assert f"search exact over 3 variables in 500.00 ms, {verdict}" in lines
    (predicted,) = (line for line in lines if line.startswith("predicted 25.0 µs; "))
    assert re.findall(r"[0-9.]+ µs", predicted) == ["25.0 µs", "22.0 µs", "20.0 µs"]
    assert "other levels 60.0 µs nchw, 30.0 µs uniform" in lines
    assert "activations 6.1 MB between the kernels" in lines
    assert "weights 47.0 MB given, 103.4 MB packed, at most 120.0 MB allowed" in lines
    assert "costs of convolutions: 1 measured" in lines
    assert "accuracy strict: at most 5e-06 norm-wise promised" in lines
    error = "1.2e-06 norm-wise (within the 5e-06 promised), 1.5e-05 absolute, 2.5e-06"
    assert f"largest error {error} of the largest value, against the reference" in lines
    assert (
        "conv2d_0 1x3x16x16 -> 8, 3x3 direct ic_bn=3 oc_bn=8 unroll_ker NCHW[3]c NCHW[8]c 12.3 "
        "measured" in lines
    )
    assert "relu_1 1x3x16x16 -> 8, 3x3 - NCHW[3]c NCHW[8]c 12.3 measured" in lines
    assert "layouts 2 transforms - - - 3.0 measured" in lines
    listed = cli("explain", explained, "--transforms").out.splitlines()
    assert "NCHW NCHW[3]c 1x3x16x16 2 1.5 measured" in [" ".join(line.split()) for line in listed]


def test_columns_are_aligned(cli, explained):
    lines = cli("explain", explained).out.splitlines()
    header = next(line for line in lines if line.startswith("op "))
    rows = [line for line in lines if line.startswith(("conv2d_0", "relu_1"))]
    assert {row.index("NCHW[3]c") for row in rows} == {header.index("in ")}


def test_whose_records_the_costs_are_of(cli, linear):
    sources = ["estimated", "measured on znver4 with 2 threads", "measured", "measured and folded"]
    ops = [{**OP, "cost_source": source} for source in [*sources, *sources[:2]]]
    header = replace(linear.header, stored_plan={**PLAN, "ops": [*ops, {**OP, "kind": "relu"}]})
    write_artifact(linear.built, linear.weights, header, "net.so")
    text = cli("explain", "net.so").out
    costs = "1 measured, 1 measured and folded, 2 measured on znver4 with 2 threads, 2 estimated"
    assert f"costs of convolutions: {costs}" in [
        " ".join(line.split()) for line in text.splitlines()
    ]
    assert text.count("measured on znver4 with 2 threads\n") == 2


def test_json_is_the_plan(cli, explained):
    found = cli("explain", explained, "--json").json
    assert found == Plan.from_json(PLAN).to_json()
    assert Plan.from_json(found) == Plan.from_json(PLAN)


def test_of_what_compile_wrote(cli, artifact):
    plan = cli("explain", artifact, "--json").json
    assert plan == read_header(artifact).stored_plan
    assert {"target", "threads", "opt", "search", "ops", "transforms", "passes"} <= set(plan)
    text = cli("explain", artifact).succeeds()
    assert all(op["name"] in text.out for op in plan["ops"])


def test_rules_and_how_often_they_were_applied(cli, linear):
    rules = {"applied": {"fold-scale": 3, "merge-slices": 1}, "disabled": ["drop-slice"]}
    header = replace(linear.header, stored_plan={**PLAN, "rules": rules})
    write_artifact(linear.built, linear.weights, header, "net.so")
    lines = [" ".join(line.split()) for line in cli("explain", "net.so").out.splitlines()]
    assert "rules fold-scale 3, merge-slices 1" in lines
    assert "without drop-slice" in lines


def test_operators_in_integers_are_marked(cli, linear):
    ops = [{**OP, "precision": "int8"}, {**OP, "name": "relu_1", "precision": "fp32"}]
    header = replace(linear.header, stored_plan={**PLAN, "ops": ops})
    write_artifact(linear.built, linear.weights, header, "net.so")
    lines = [" ".join(line.split()) for line in cli("explain", "net.so").out.splitlines()]
    assert any(line.startswith("op computes in workload") for line in lines)
    assert any(line.startswith("conv2d_0 int8 1x3x16x16") for line in lines)
    assert any(line.startswith("relu_1 fp32 1x3x16x16") for line in lines)


def test_shares_of_a_run(cli, linear):
    """Operators, fused kernels and transforms have a share; a fused operator has none."""
    conv = {**OP, "kernel": "conv2d_0", "predicted_us": 20.0, "share": 0.2}
    relu = {**OP, "name": "relu_1", "kind": "relu", "kernel": None}
    shares = {"fused_add": ("other", 2, 50.0), "transform": ("transform", 2, 5.0)}
    shares |= {"conv2d_0": ("conv2d", 1, 20.0), "runtime": ("runtime", 1, 25.0)}
    kernels = [
        {"kernel": name, "kind": kind, "calls": calls, "cost_us": cost, "share": cost / 100}
        | {"cost_source": "estimated"}
        for name, (kind, calls, cost) in shares.items()
    ]
    plan = {**PLAN, "ops": [conv, {**relu, "share": None}], "kernels": kernels}
    plan["predicted_us"] = 100.0
    write_artifact(linear.built, linear.weights, replace(linear.header, stored_plan=plan), "net.so")
    for order in ((), ("--sort",)):
        rows = [
            " ".join(line.split()) for line in cli("explain", "net.so", *order).out.splitlines()
        ]
        table = rows[rows.index("") + 2 :]
        names = [row.split()[0] for row in table]
        sorted_names = ["fused_add", "runtime", "conv2d_0", "layouts", "relu_1", "total"]
        plain_names = ["conv2d_0", "relu_1", "fused_add", "runtime", "layouts", "total"]
        assert names == (sorted_names if order else plain_names)
        assert "fused_add 2 calls - - - 50.0% 50.0 estimated" in table
        assert "layouts 2 transforms - - - 5.0% 5.0 measured" in table
        assert any(row.endswith("20.0% 20.0 measured") for row in table)
        assert any(row.endswith("fused 12.3 measured") for row in table)
        assert "total 100.0% 100.0" in table


@pytest.fixture(scope="module")
def pair(tmp_path_factory, onnx_file):
    """The small model, computed in two ways."""
    folder = tmp_path_factory.mktemp("pair")
    paths = folder / "nchw.so", folder / "direct.so"
    for path in paths:
        settings = {"threads": 1, "only_databases": True, "algorithms": [path.stem]}
        with neocpu.compile(str(onnx_file), **settings) as compiled:
            compiled.export(path)
    return paths


def test_text_json_and_page_agree(cli, pair):
    outcome = cli("explain", *pair, "--json", "--html", "change.html").succeeds()
    assert "wrote change.html" in outcome.err
    found = outcome.json
    plans = [cli("explain", path, "--json").json for path in pair]
    for side, plan in zip((found["before"], found["after"]), plans, strict=True):
        assert side["predicted_us"] == pytest.approx(plan["predicted_us"])
    assert found["bought_us"] == pytest.approx(plans[0]["predicted_us"] - plans[1]["predicted_us"])
    convolution = next(step for step in found["steps"] if step["before"]["kind"] == "conv2d")
    assert convolution["matched_by"] in ("tensor", "workload")
    assert convolution["reason"] == "algorithm"
    rows = parts_in(Path("change.html"), "table")[1]["rows"]
    figures = ("name", "before_us", "after_us", "bought_us")
    assert sorted(str(row[:4]) for row in rows) == sorted(
        str([step[figure] for figure in figures]) for step in found["steps"]
    )
    text = cli("explain", *pair).out
    assert "nchw.so → direct.so" in text.splitlines()[0]
    assert f"{found['bought_us']:+.1f}" in text
    assert "nchw → direct" in text


def test_measured(cli, pair, monkeypatch):
    # Measuring this machine's limits would take seconds.
    known = Limits(threads=1, flops=1e11, dram=1e10)
    monkeypatch.setattr(roofline, "measure_limits", lambda *_: known)
    monkeypatch.setattr(plan_comparison, "TURNS", 2)
    found = cli("explain", *pair, "--json", "--profile").json
    for side in ("before", "after"):
        assert found[side]["measured_us"] > 0
        taken = [step[side]["measured_us"] for step in found["steps"] if step[side]]
        assert sum(taken) == pytest.approx(found[side]["measured_us"])


def test_errors(cli, pair, linear, monkeypatch):
    Path("foreign.so").write_bytes(b"\x7fELF and nothing else")
    for files in ((pair[0], "foreign.so"), ("foreign.so", pair[0])):
        cli("explain", *files, "--html", "page.html").fails(8, "foreign.so")
    cli("explain", pair[0], "missing.so").fails(8, "missing.so")
    broken = replace(linear.header, stored_plan={"ops": [5]})
    write_artifact(linear.built, linear.weights, broken, "broken.so")
    cli("explain", pair[0], "broken.so").fails(8, "broken.so has a plan that cannot be shown")
    other = linear.header.with_plan(small_plan())
    write_artifact(linear.built, linear.weights, other, "other.so")
    outcome = cli("explain", pair[0], "other.so", "--html", "page.html").fails(
        2, "other.so (linear) are not compiled from one model"
    )
    for file in pair:
        assert "written over" in cli("explain", *pair, "--html", file).error
    for option in (("--trace", "t.json"), ("--transforms",)):
        cli("explain", *pair, *option).fails(2, "drop OTHER.so")
    with monkeypatch.context() as patch:  # nothing is measured in vain
        patch.setattr(plan_comparison, "measured_profile", pytest.fail)
        outcome = cli("explain", *pair, "--profile", "--html", "missing/page.html")
    assert outcome.code == 2
    assert "there is no folder missing" in outcome.error
    assert not Path("page.html").exists()


@browser.NEEDED
def test_in_a_browser(cli, pair):
    assert cli("explain", *pair, "--html", "change.html").code == 0
    with browser.browser() as page:
        for width, dark in ((1400, False), (390, True)):
            page.open(Path("change.html"), width, dark=dark)
            page.look_well(width)
            heading = "document.querySelectorAll('section:nth-of-type(2) th button')[0]"
            page.value(f"{heading}.focus()")
            page.press("Enter")
            rows = "[...document.querySelectorAll('section:nth-of-type(2) tbody tr')]"
            names = page.value(f"{rows}.map((row) => row.cells[0].textContent)")
            assert names == sorted(names, key=str.casefold)
            assert page.value("document.activeElement.textContent").startswith("operator")
