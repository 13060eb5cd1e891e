"""``neocpu db``: the output, files and exit code of each command."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conv_workloads import conv_workload

from neocpu.cli import db
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import DepthwiseScheme, DirectScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.tuning_db import store as store_module
from neocpu.tuning_db.packed import pack
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey

WORKLOAD = conv_workload(1, 64, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1))
# That of the small model of the fixtures.
SMALL = conv_workload(1, 3, 16, 16, 8, (3, 3), padding=(1, 1, 1, 1), epilogue=(EpilogueOp("relu"),))
TARGET = TargetKey.of(parse_target("llvm -mcpu=znver4"), 2)
VERSION = registry.template_version("conv2d_direct")


def record(reg_n=7, *seconds, error=None, version=VERSION, workload=WORKLOAD, threads=2):
    return Record(
        workload=workload,
        target=dataclasses.replace(TARGET, threads=threads),
        scheme=DirectScheme(16, 32, reg_n=reg_n, unroll_ker=True),
        result=Result(seconds or ((1e-3 * reg_n,) if error is None else ()), error),
        env=Environment("0.1.0", "0.27.0", "0.1.14", version),
        time="2026-11-21T12:00:00+00:00",
    )


Write = Callable[..., Path]


@pytest.fixture
def write():
    """Write records to a file of the current folder."""

    def write(name, *records, tail=""):
        path = Path(name)
        path.write_text("".join(made.to_line() for made in records) + tail)
        return path

    return write


@pytest.fixture(autouse=True)
def shipped(tmp_path, monkeypatch):
    """One shipped file, of one record."""
    path = tmp_path / "shipped.records"
    path.write_bytes(pack([record(1)]))
    monkeypatch.setattr(store_module, "shipped_databases", lambda: (path,))
    return path


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_stats(cli, write, shipped):
    write("a.jsonl", record(7, 9e-3), record(), record(2, error="timeout"), tail="torn")
    write("b.jsonl", record(3, version=VERSION - 1), record(4, threads=1))
    user = store_module.default_database()
    user.parent.mkdir(parents=True)
    user.write_text(record(5).to_line())
    outcome = cli("db", "stats").succeeds()
    size = {name: Path(name).stat().st_size for name in ("a.jsonl", "b.jsonl")}
    assert lines(outcome.out) == [
        "layer size records superseded skipped file",
        f"shipped {shipped.stat().st_size} B 1 0 0 {shipped}",
        f"user {user.stat().st_size} B 1 0 0 {user}",
        "",
        "layer CPU template threads workloads records failed stale",
        "shipped znver4 conv2d_direct 2 1 1 0 0",
        "user znver4 conv2d_direct 2 1 1 0 0",
    ]
    assert lines(cli("db", "stats", "a.jsonl", "b.jsonl").out) == [
        "layer size records superseded skipped file",
        f"named {size['a.jsonl'] / 1e3:.1f} kB 2 1 1 a.jsonl",
        f"named {size['b.jsonl'] / 1e3:.1f} kB 2 0 0 b.jsonl",
        "",
        "layer CPU template threads workloads records failed stale",
        "named znver4 conv2d_direct 2 1 2 1 0",
        "named znver4 conv2d_direct 1 1 1 0 0",
        "named znver4 conv2d_direct 2 1 1 0 1",
    ]
    (document,) = cli("db", "stats", "a.jsonl", "--json").json["files"]
    assert document == {
        "layer": "named",
        "path": "a.jsonl",
        "bytes": size["a.jsonl"],
        "records": 2,
        "superseded": 1,
        "skipped": 1,
        "groups": [
            {
                "mcpu": "znver4",
                "threads": 2,
                "template": "conv2d_direct",
                "workloads": 1,
                "records": 2,
                "failed": 1,
                "stale": 0,
            }
        ],
    }


def bad_file(write):
    version = registry.template_version("conv2d_depthwise")
    depthwise = dataclasses.replace(record(version=version), scheme=DepthwiseScheme(16, 4, False))
    return write(
        "bad.jsonl",
        record(),
        depthwise,
        tail=record().to_line().replace('"v":1', '"v":9')
        + record().to_line().replace("0.007", "-1")
        + record().to_line()[:100],
    )


def test_check(cli, write, shipped):
    good = cli("db", "check")
    assert (good.code, good.out) == (0, f"{shipped}: 1 record, all good\n")
    path = bad_file(write)
    outcome = cli("db", "check", path)
    assert outcome.code == 7
    found = outcome.out.splitlines()
    assert [line.split(":", 2)[:2] for line in found] == [
        ["bad.jsonl", str(n)] for n in (2, 3, 4, 5)
    ]
    for line, reason in zip(
        found,
        (
            f"{DepthwiseScheme(16, 4, False)} cannot compute {WORKLOAD}",
            "record version 9, expected 1",
            "impossible seconds: -1",
            "Expecting value",
        ),
        strict=True,
    ):
        assert reason in line
    assert outcome.error == (
        "neocpu: error: 4 bad lines in 1 file; 'neocpu db prune FILE' drops them, except "
        "those of other versions of neocpu"
    )
    as_json = cli("db", "check", shipped, path, "--json")
    assert as_json.code == 7
    document = as_json.json
    assert document["files"][0]["bad"] == []
    assert [bad["line"] for bad in document["files"][1]["bad"]] == [2, 3, 4, 5]


def test_absurd_numbers_are_named_and_left_out(cli, write):
    """Such numbers would end every compilation that reads the database."""
    text, huge = record().to_line(), "1" + "0" * 400
    names = ("ic_bn", "oc_bn", "reg_n", "reg_oh", "threads")
    bad = [re.sub(rf'"{name}":\d+', f'"{name}":{huge}', text) for name in names]
    path = write("absurd.jsonl", record(), tail="".join(bad))
    outcome = cli("db", "check", path)
    assert outcome.code == 7
    said = f"10000000000000000000… ({len(huge)} characters) is beyond all numbers here"
    assert outcome.out.splitlines() == [f"absurd.jsonl:{n}: {said}" for n in range(2, 7)]
    # Numbers too large for a scheme but not for JSON, and a convolution of padding only.
    for value, reason in ((1 << 40, "bad parameters"), (1 << 20, "cannot compute")):
        path = write("large.jsonl", tail=re.sub(r'"oc_bn":\d+', f'"oc_bn":{value}', text))
        assert reason in check_lines(cli, path)[0]["reason"]


def test_prune_drops_what_check_found(cli, write):
    path = bad_file(write)
    before = path.read_bytes()
    planned = cli("db", "prune", path, "--dry-run")
    assert (planned.code, path.read_bytes()) == (0, before)
    sizes = f"{len(before) / 1e3:.1f} kB -> "
    assert planned.out.startswith(
        f"bad.jsonl: would drop 2 torn, 1 unfit; would keep 1 record and 1 line of other versions "
        f"of neocpu; {sizes}"
    )
    outcome = cli("db", "prune", path).succeeds()
    assert outcome.out == planned.out.replace("would drop", "dropped").replace("would keep", "kept")
    assert [line["reason"] for line in check_lines(cli, path)] == ["record version 9, expected 1"]
    again = cli("db", "prune", path, "--json").json
    assert again == {
        "path": "bad.jsonl",
        "kept": 1,
        "foreign": 1,
        "dropped": {},
        "bytes_before": path.stat().st_size,
        "bytes_after": path.stat().st_size,
        "dry_run": False,
    }


def check_lines(cli, path):
    return cli("db", "check", path, "--json").json["files"][0]["bad"]


def test_prune_keeps_the_best_and_failures_if_asked(cli, write, shipped):
    every = [record(n) for n in (3, 1, 2)] + [record(4, error="timeout")]
    path = write("a.jsonl", *every)
    cli("db", "prune", path, "--keep-best", 2)
    assert path.read_text() == "".join(made.to_line() for made in every[1:])
    cli("db", "prune", path, "--failed")
    assert path.read_text() == "".join(made.to_line() for made in every[1:3])
    outcome = cli("db", "prune", shipped)
    assert outcome.code == 2
    assert outcome.error.endswith(
        "shipped.records comes with neocpu and is never changed: name another file"
    )


def test_prune_is_of_the_users_own_database(cli):
    user = store_module.default_database()
    cli("db", "prune").fails(7, f"cannot read tuning database {user}: No such file")
    user.parent.mkdir(parents=True)
    user.write_text(record(5).to_line() * 2)
    assert cli("db", "prune").out.startswith(f"{user}: dropped 1 superseded; kept 1 record; ")


def test_merge(cli, write):
    one = write("one.jsonl", record(1), record(2), tail="torn\n")
    two = write("two.jsonl", record(2, 1.0, 2.0), record(3))
    outcome = cli("db", "merge", "all.jsonl", one, two).succeeds()
    assert outcome.out.splitlines() == [
        "one.jsonl: took 1 new and 0 better of 2 records, left 1 known, 1 line skipped",
        "two.jsonl: took 2 new and 0 better of 2 records, left 0 known",
        "merged into all.jsonl",
    ]
    assert "one.jsonl:3: skipped: " in outcome.err
    document = cli("db", "merge", "all.jsonl", one, two, "--json").json
    assert document["destination"] == "all.jsonl"
    assert document["files"][1] == {
        "path": "two.jsonl",
        "records": 2,
        "added": 0,
        "improved": 0,
        "skipped": 0,
    }
    exported = cli("db", "export", "--db", "all.jsonl", "--json").json["records"]
    assert {(r["scheme"]["reg_n"], len(r["result"]["seconds"])) for r in exported} == {
        (1, 1),
        (2, 2),
        (3, 1),
    }


def test_export(cli, write, onnx_file):
    a = write("a.jsonl", record(3), record(2), record(2, workload=SMALL), record(4, threads=1))
    b = write("b.jsonl", record(2, 9e-3), record(5, error="timeout"), record(6, version=0))
    outcome = cli(
        "db", "export", "--db", a, "--db", b, "--threads", 2, "--cpu", "znver4"
    ).succeeds()
    found = [json.loads(line) for line in outcome.out.splitlines()]
    counted = [(r["workload"]["height"], r["scheme"]["reg_n"], r["result"]["error"]) for r in found]
    expected = {(16, 2, None), (56, 1, None), (56, 2, None), (56, 3, None), (56, 5, "timeout")}
    assert set(counted) == expected
    assert len(counted) == len(expected)
    other_way = cli("db", "export", "--db", b, "--db", a, "--threads", 2, "-o", "out.jsonl")
    assert other_way.out == f"out.jsonl: 5 records, {len(outcome.out) / 1e3:.1f} kB\n"
    # The last file counts for a scheme that both files have.
    assert Path("out.jsonl").read_text() == outcome.out.replace("[0.009]", "[0.002]")
    best = cli("db", "export", "--db", a, "--best", 1, "--json", "--threads", 2)
    assert len(best.json["records"]) == 2
    of_model = cli("db", "export", "--db", a, "--model", onnx_file)
    assert [json.loads(line)["workload"]["height"] for line in of_model.out.splitlines()] == [16]


def test_export_overwrites_none_of_its_sources(cli, write, shipped):
    path = write("a.jsonl", record(3), tail='{"v":9}\n')
    for output in (path, shipped, Path("link.jsonl")):
        if output.name == "link.jsonl":
            output.symlink_to(path)
        before = output.read_bytes()
        outcome = cli("db", "export", "--db", path, "-o", output)
        assert outcome.code == 2
        source = path if output.is_symlink() else output
        assert f"cannot write {output}: {source} would be written over;" in outcome.error
        assert output.read_bytes() == before


def test_export_to_something_other_than_a_file_is_refused(cli):
    os.mkfifo("pipe")
    cli("db", "export", "-o", "pipe").fails(7, "pipe: it is a pipe, not a file")
    assert Path("pipe").is_fifo()


def test_check_names_a_file_of_another_kind(cli, tmp_path):
    path = tmp_path / "net.so"
    path.write_bytes(b"\x7fELF\xa0\n\xc8\n")
    outcome = cli("db", "check", path)
    assert outcome.code == 7
    assert outcome.err.splitlines() == [
        f"neocpu: error: {path} is no tuning database; name another file"
    ]
    assert outcome.out == ""


def test_a_foreign_file_does_not_print_all_of_itself(cli, write):
    path = write("a.jsonl", tail="x\n" * (db.MAX_NOTES + 5))
    for arguments in (("merge", "all.jsonl", path), ("export", "--db", path)):
        err = cli("db", *arguments).err.splitlines()
        assert len(err) == db.MAX_NOTES + 1
        assert err[-1] == "neocpu: 5 more lines skipped; 'neocpu db check FILE' names them"


def test_mistakes(cli):
    cli("db", "stats", "nowhere.jsonl").fails(
        7, "cannot read tuning database nowhere.jsonl: No such file"
    )
    for how in (["check", "."], ["prune", "."], ["merge", "all.jsonl", "."], ["export", "-o", "."]):
        assert "--db" not in cli("db", *how).error
    assert cli("db", "check", ".").error.endswith("it is a folder, not a file; name another file")
    assert cli("db", "export", "-o", ".").error.endswith("or choose another -o")
    assert cli("db", "merge", "all.jsonl").code == 2
    assert cli("db", "prune", "--keep-best", 0).code == 2
    assert "did you mean" in cli("db", "export", "--model", "resnet5").error
    assert not Path("all.jsonl").exists()


def test_progress_is_shown_when_it_takes_long(cli, write, monkeypatch):
    path = write("long.jsonl", *[record()] * 1500)
    assert "read" not in cli("db", "stats", path).err
    monkeypatch.setattr(db, "PROGRESS_AFTER", -1.0)
    assert "neocpu: read 1000/1501 long.jsonl" in cli("db", "stats", path).err
    assert cli("db", "stats", path, "-q").err == ""
