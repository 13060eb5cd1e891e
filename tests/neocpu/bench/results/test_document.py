"""The document that says how to run the benchmark again."""

from dataclasses import replace

from synthetic import MACHINE, PEERS, model, roofline, suite

from neocpu.bench.race.presentation import present
from neocpu.bench.race.report import SuiteReport
from neocpu.bench.results.presentation import Run, document

RUN = Run(
    command="neocpu bench --suite paper -o docs/benchmarks.md",
    machine=MACHINE,
    peers=PEERS,
    threads=(2,),
    rounds=12,
)


def render(title, report, run, charts):
    return document(title, run, present(report, run, detailed=False), charts)


def test_the_document_has_everything_to_repeat_the_run():
    text = render("Benchmark of the paper suite", suite(), RUN, {"Speed": "benchmarks.svg"})
    assert text.startswith("# Benchmark of the paper suite\n")
    assert "```\nneocpu bench --suite paper -o docs/benchmarks.md\n```" in text
    for fact in (
        "- Date: 2026-01-02T03:04:05+00:00",
        "- CPU: Test CPU, 2 usable",
        "- Caches: L1d 32 KiB, L2 1 MiB",
        "- Memory: 1.5 GiB",
        "- Versions: neocpu 0.1.0, onnxruntime 1.31",
        "- Threads: 2",
    ):
        assert fact in text.splitlines()
    assert "in 12 interleaved rounds" in text
    assert "compared with those of onnxruntime" in text
    assert "![Speed](benchmarks.svg)" in text


def test_sections_in_order():
    report = SuiteReport((model("net", 10, 20, roofline=roofline("net")),))
    headings = [line for line in render("T", report, RUN, {}).splitlines() if line[:1] == "#"]
    assert headings == [
        "# T",
        "## Machine and versions",
        "## Method",
        "## Results",
        "### Latency in ms",
        "### Peak resident memory in MB",
        "### Roofline",
        "## Details",
        "### Percentiles, load time, memory and accuracy",
        "### Compilation",
        "### Search and prediction",
    ]


def test_bad_results_stay_in_the_document():
    text = render("T", suite(), RUN, {})
    assert "| broken | failed |" in text
    assert "- Worst row: lost, 0.50" in text


def test_an_unknown_cache_is_left_out():
    run = replace(RUN, machine=replace(MACHINE, caches={}))
    assert "Caches" not in render("T", suite(), run, {})


def test_a_peer_that_is_not_installed_is_named():
    assert "Not installed" not in render("T", suite(), RUN, {})
    text = render("T", suite(), replace(RUN, missing=("ncnn",)), {})
    assert "- Not installed, so not compared: ncnn" in text.splitlines()


def test_few_rounds_are_pointed_out():
    doubt = "With fewer than 6 rounds the intervals are narrower than the truth."
    assert doubt in render("T", suite(), replace(RUN, rounds=5), {})
    assert doubt not in render("T", suite(), replace(RUN, rounds=6), {})
