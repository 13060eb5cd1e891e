"""``neocpu explain A.so B.so``: as text, as JSON and as a page, with the same content."""

import json
from dataclasses import replace
from pathlib import Path

import browser
import pytest
from page_sections import parts_in
from small_plans import small_plan

import neocpu
from neocpu.bench.limits import roofline
from neocpu.bench.limits.roofline import Limits
from neocpu.building.link import write_artifact
from neocpu.plan.text import plan_comparison


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
    found = json.loads(outcome.out)
    plans = [json.loads(cli("explain", path, "--json").out) for path in pair]
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
    found = json.loads(cli("explain", *pair, "--json", "--profile").out)
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
