"""``neocpu tune``: options, report, and what remains after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import needs
import onnx
import pytest
from command_line import conv_model, environment
from page_sections import parts_in
from waiting import wait_until

import neocpu
from neocpu.foundation.console import progress_line
from neocpu.foundation.errors import UsageError
from neocpu.tuning_db.record import Record

#: Training the cost model on all shipped records takes seconds.
UNLEARNED = ("--strategy", "random")


def test_options(cli, monkeypatch):
    calls = []

    def record(models, **settings):
        assert callable(settings.pop("on_progress"))
        assert callable(settings.pop("on_interrupt"))
        calls.append((models, settings))
        raise UsageError("stop")

    monkeypatch.setattr(neocpu, "tune", record)
    cli(
        *"tune resnet50 b.onnx --batch 4 --target llvm -mcpu=znver4 --db x --budget 2m --trials 9 "
        "--accuracy strict".split()
    )
    assert calls == [
        (
            ("resnet50", "b.onnx"),
            {
                "target": "llvm -mcpu=znver4",
                "threads": None,
                "shapes": {},
                "batch": 4,
                "database": Path("x"),
                "only_database": False,
                "strategy": "xgb",
                "seed": 0,
                "budget": 120.0,
                "trials": 9,
                "accuracy": "strict",
                "tracker": None,
                "key": None,
                "parallel": None,
            },
        )
    ]


def test_a_fleets_target_and_threads_are_not_guessed(cli):
    fleet = ("tune", "resnet50", "--tracker", "127.0.0.1:1", "--key", "pi4")
    assert "--tracker needs --target" in cli(*fleet).error
    assert "--tracker needs --threads" in cli(*fleet, "--target", "host").error
    outcome = cli("tune", "resnet50", "--key", "pi4")
    assert (outcome.code, "--key needs --tracker" in outcome.error) == (2, True)


def test_measures_once(cli, onnx_file):
    # Shipped records may cover the transforms.
    alone = ("--db", "x.jsonl", "--only-db", "--threads", 1)
    first = cli(
        "tune", onnx_file, "--trials", 2, *alone, "--json", "--html", "tuning.html"
    ).succeeds()
    report = first.json
    assert (report["measured"], report["reused"], report["failed"]) == (2, 0, 0)
    assert len(tried()) == 2
    convolution, *memory_bound = report["workloads"]
    assert convolution["source"] == "measured"
    assert convolution["best_us"] > 0
    assert convolution["gflops"] > 0
    assert convolution["noise"] >= 0
    assert convolution["checked"]
    assert {row["source"] for row in memory_bound} == {"estimated"}
    same_as_on_the_page(report)
    again = cli("tune", onnx_file, "--trials", 1, *alone).succeeds()
    assert "measured      1 scheme in " in again.out
    assert "kept          1 measurement kept in x.jsonl; " in again.out
    assert "winner" in again.out
    assert len(again.out.splitlines()) == 5
    assert again.err.splitlines()[1] == "neocpu: tune estimating the schemes of 3 layers"
    assert len(tried()) == 3


def same_as_on_the_page(report):
    """Check the measured layer's row, and the curve of its trials, against the report."""
    layer = report["workloads"][0]
    (row,) = parts_in(Path("tuning.html"), "table")[0]["rows"]
    assert row[:4] == [layer["workload"], layer["count"], layer["before_us"], layer["best_us"]]
    network, curve = parts_in(Path("tuning.html"), "chart")
    dots, best, before = (line["values"] for line in curve["lines"])
    assert dots == [min(trial["repeats_us"]) for trial in layer["trials"]]
    assert best == [dots[0], min(dots)]
    assert before == [layer["before_us"]] * 2
    assert curve["lines"][0]["high"] == [max(trial["repeats_us"]) for trial in layer["trials"]]
    assert network["along"] == [0.0, *(trial["seconds"] for trial in layer["trials"])]


def tried():
    """The schemes on record, each with its workload; one compared again has several lines."""
    records = [json.loads(line) for line in Path("x.jsonl").read_text().splitlines()]
    return {str((record["workload"], record["scheme"])) for record in records}


def test_no_measurement_at_all(cli, onnx_file):
    nothing_known = ("--only-db", "--db", "x.jsonl")
    arguments = ("tune", onnx_file, "--strategy", "analytic", *nothing_known)
    report = cli(*arguments, "--json").json
    assert report["measured"] == 0
    assert {row["source"] for row in report["workloads"]} == {"estimated"}
    assert report["workloads"][0]["best_us"] > 0
    assert "~" in cli(*arguments).out
    # No machine is needed to measure nothing.
    foreign = ("--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "--threads", 1)
    estimated = cli(*arguments, *foreign, "--json").json["workloads"][0]
    assert estimated["best_us"] > report["workloads"][0]["best_us"]
    assert not Path("x.jsonl").exists()


def test_a_budget_too_small_for_one_measurement(cli, onnx_file):
    arguments = ("--budget", "0.2", "--db", "x.jsonl", "--threads", 1, *UNLEARNED)
    outcome = cli("tune", onnx_file, *arguments).succeeds()
    assert "is not enough for one measurement" in outcome.err
    assert len(tried()) == 1


@needs.everything()
def test_the_models_of_a_suite_are_tuned_in_one_run(cli, monkeypatch):
    from neocpu.frontend import models

    built = []

    def build(name, shapes):
        built.append(name)
        return conv_model(filters=16 if name == "resnet34" else 8)

    tiny = {"tiny": ("resnet18", "resnet34", "resnet50")}
    monkeypatch.setattr(models, "suite", lambda name: tiny[name])
    monkeypatch.setattr(models, "build_with_shapes", build)
    monkeypatch.setattr(progress_line, "PLAIN_INTERVAL", 0)  # the trials may take less
    # Shipped records of the transforms would count as reused ones.
    limits = ("--trials", 3, "--threads", 1, "--only-db")
    arguments = ("tune", "--suite", "tiny", "--db", "x.jsonl", *limits, *UNLEARNED)
    first = cli(*arguments, "--json").succeeds()
    report = first.json
    assert built == list(tiny["tiny"])
    # Two networks share their convolution: it is one workload.
    convolutions = [row for row in report["workloads"] if row["gflops"]]
    assert [row["count"] for row in convolutions] == [2, 1]
    assert report["measured"] == 3
    assert " left; " in first.err
    again = cli(*arguments, "--json").json
    assert again["reused"] == 3
    # A CPU with long vectors may have fewer candidates left.
    assert 1 <= again["measured"] <= 3
    assert len(tried()) == 3 + again["measured"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--suite", "papr"), "no suite 'papr'"),
        (("--suite", "papr"), "did you mean 'paper'?"),
        (("resnet19",), "no built-in network 'resnet19'"),
        ((), "missing argument"),
    ],
)
def test_unknown_networks(cli, arguments, message):
    cli("tune", *arguments).fails(2, message)


def test_unknown_strategy(cli, onnx_file):
    cli("tune", onnx_file, "--strategy", "gird").fails(2, "did you mean 'grid'?")


@pytest.mark.parametrize("place", [".", "/sys/kernel/records.jsonl", "file/records.jsonl"])
def test_database_that_cannot_be_written(cli, onnx_file, place):
    Path("file").touch()
    cli("tune", onnx_file, "--db", place, "--trials", 1, *UNLEARNED).fails(7, place, "--db")


def test_damaged_lines_are_skipped_and_kept(cli, onnx_file):
    Path("x.jsonl").write_text('{"torn\nnot a record\n{"v": 1}')
    before = Path("x.jsonl").read_text()
    assert cli("compile", onnx_file, "--db", "x.jsonl", "--quiet").code == 0
    assert Path("x.jsonl").read_text() == before


def test_interrupted_tuning_keeps_its_measurements():
    onnx.save(conv_model(channels=32, filters=48, size=28), "net.onnx")
    database = Path("x.jsonl")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "neocpu", "tune", "net.onnx", "--db", str(database)),
            *("--html", "tuning.html", *UNLEARNED),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:

        def has_two_records():
            assert process.poll() is None, process.communicate()
            return database.exists() and database.read_bytes().count(b"\n") >= 2

        wait_until(has_two_records)
        os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C sends, to the children too
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    records = [Record.from_line(line) for line in database.read_bytes().splitlines()]
    assert len(records) >= 2
    assert err.endswith(
        f"neocpu: error: interrupted; {len(records)} measurements kept in {database}\n"
    )
    tiles = parts_in(Path("tuning.html"), "tiles")[0]["tiles"]
    assert 1 <= tiles[0]["value"] <= len(records)
    assert "Tuning of net.onnx, interrupted" in Path("tuning.html").read_text()
    with pytest.raises(ProcessLookupError):  # no measuring process is left behind
        os.killpg(process.pid, 0)
