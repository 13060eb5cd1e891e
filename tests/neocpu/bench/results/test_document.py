"""The document that says how to run the benchmark again, and the tables of a race."""

from dataclasses import replace

from synthetic import MACHINE, PEERS, model, roofline, suite

from neocpu.bench.engines.contenders import Failure
from neocpu.bench.race.coldstart import ColdStartReport, ColdStartResult, Start, cold_start_table
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult
from neocpu.bench.race.presentation import present
from neocpu.bench.race.report import SuiteReport
from neocpu.bench.race.suite_tables import latency_table
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


def test_an_unknown_cache_is_left_out():
    run = replace(RUN, machine=replace(MACHINE, caches={}))
    assert "Caches" in render("T", suite(), RUN, {})
    assert "Caches" not in render("T", suite(), run, {})


def test_missing_peers_and_few_rounds_are_pointed_out():
    text = render("T", suite(), replace(RUN, missing=("ncnn",), rounds=5), {})
    assert "- Not installed, so not compared: ncnn" in text.splitlines()
    doubt = "With fewer than 6 rounds the intervals are narrower than the truth."
    assert doubt in text
    assert doubt not in render("T", suite(), replace(RUN, rounds=6), {})
    assert "Not installed" not in render("T", suite(), RUN, {})


def _result(label, milliseconds, error=1e-7):
    return LatencyResult(
        label=label,
        version="1.0",
        rounds=((milliseconds / 1e3,) * 3,) * 4,
        load_seconds=0.1,
        error=error,
    )


REPORT = LatencyReport(
    threads=2,
    results=(_result("neocpu", 18), _result("onnxruntime", 20, 0.0)),
    failures=(),
    reference="onnxruntime",
)


def test_latency_in_markdown():
    assert latency_table("Latency of net", REPORT, "neocpu").markdown() == (
        "### Latency of net\n"
        "\n"
        "| contender | median ms | p90 ms | p99 ms | it / neocpu (95 %) | peak MB | error |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| neocpu 1.0 | 18.00 | 18.00 | 18.00 |  |  | 1.0e-07 |\n"
        "| onnxruntime 1.0 | 20.00 | 20.00 | 20.00 | 1.11 (1.11 to 1.11) |  | reference |\n"
        "\n"
        "- neocpu is 1.11 times faster than the fastest peer, onnxruntime.\n"
    )


def test_the_verdict_is_about_the_fastest_right_peer():
    wrong, slow = _result("wrong", 5, error=0.5), _result("slow", 40)
    report = replace(REPORT, results=(*REPORT.results, wrong, slow))
    verdict, warning = latency_table("net", report, "neocpu").notes
    assert verdict == "neocpu is 1.11 times faster than the fastest peer, onnxruntime."
    assert warning.startswith("wrong disagrees with onnxruntime: relative error 0.5")
    errors = [row[-1] for row in latency_table("net", report, "neocpu").rows]
    assert errors == ["1.0e-07", "reference", "5.0e-01 (wrong)", "1.0e-07"]


def test_a_wrong_neocpu_gets_no_verdict():
    fast = _result("neocpu", 1, error=0.5)
    report = replace(REPORT, results=(fast, REPORT.results[1]))
    (warning,) = latency_table("net", report, "neocpu").notes
    assert warning.startswith("neocpu disagrees")


def test_contenders_too_close_to_rank_are_not_ranked():
    one = replace(_result("neocpu", 1), rounds=((1.0,), (3.0,), (1.0,), (3.0,)))
    two = replace(_result("onnxruntime", 1), rounds=((3.0,), (1.0,), (3.0,), (1.0,)))
    notes = latency_table("net", replace(REPORT, results=(one, two)), "neocpu").notes
    assert notes[0] == "neocpu and onnxruntime are too close to tell apart."


def _starts(seconds):
    return (Start(seconds / 2, seconds / 4, seconds / 8, seconds / 8, 0.01),) * 2


def test_the_cold_start_table_names_failures():
    report = ColdStartReport(
        1,
        (ColdStartResult("neocpu", _starts(0.2), 150_000_000, 0.0004),),
        (Failure("openvino", "no"),),
    )
    table = cold_start_table("net", report, "neocpu")
    steps = ("100.00", "50.00", "25.00", "25.00")
    assert table.rows == (("neocpu", *steps, "200.00", "", "10.00", "150", "0.40"),)
    assert table.notes[1:] == ("openvino failed: no",)


def test_cold_start_is_relative_to_neocpu():
    results = [
        ColdStartResult(label, _starts(s), 1, 0.0) for label, s in (("neocpu", 0.2), ("peer", 0.5))
    ]
    table = cold_start_table("net", ColdStartReport(1, tuple(results), ()), "neocpu")
    # As in the tables of many models, more than 1 is in neocpu's favour.
    column = table.header.index("it / neocpu (95 %)")
    assert [row[column] for row in table.rows] == ["", "2.50 (2.50 to 2.50)"]
