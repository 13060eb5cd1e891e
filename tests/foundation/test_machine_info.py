"""A machine is described, and so is the other load on it."""

import json
import os
from dataclasses import asdict
from datetime import datetime

import pytest

from neocpu.foundation.host import usable_cpus
from neocpu.foundation.machine.machine_info import CpuTime, OtherLoad, caches, describe


def test_the_machine_describes_itself():
    machine = describe()
    assert machine.cpu
    assert machine.cpus == usable_cpus()
    assert machine.memory > 1e8
    assert {"neocpu", "apache-tvm", "onnx"} <= set(machine.versions)
    assert abs((datetime.now().astimezone() - datetime.fromisoformat(machine.date)).days) < 1
    assert json.loads(json.dumps(asdict(machine))) == asdict(machine)


def test_data_caches_are_named(tmp_path):
    entries = [("Data", 1, "32K"), ("Instruction", 1, "64K"), ("Unified", 3, "32768K")]
    for number, (kind, level, size) in enumerate(entries):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "type").write_text(f"{kind}\n")
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    (tmp_path / "index9").mkdir()
    assert caches(tmp_path) == {"L1d": 32 << 10, "L3": 32 << 20}
    assert caches(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    ("busy", "stolen", "own", "cpus", "share", "disturbing"),
    [
        (1.0, 0.0, 1.0, 0.0, 0.0, False),
        (1.0, 0.0, 0.9, 0.05, 0.0, False),
        (1.0, 0.0, 0.0, 0.5, 0.0, True),
        (1.0, 0.2, 1.0, 0.0, 0.1, True),
        # Our own time is read a little later than the machine's.
        (1.0, 0.0, 1.1, 0.0, 0.0, False),
    ],
)
def test_load_of_other_processes_excludes_our_own(
    busy, stolen, own, cpus, share, disturbing, monkeypatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    before = CpuTime(100.0, 50.0, 2.0)
    after = CpuTime(100.0 + busy, 50.0 + 2.0 - busy - stolen, 2.0 + stolen)
    load = before.other_load(after, own)
    assert load.cpus == pytest.approx(cpus)
    assert load.stolen == pytest.approx(share)
    assert load.disturbing == disturbing


def test_load_over_too_short_a_time_counts_as_zero():
    assert CpuTime(1, 1, 0).other_load(CpuTime(1.01, 1.01, 0), 0.0) == OtherLoad(0.0, 0.0)


def test_counters_rise():
    before = CpuTime.now()
    after = CpuTime.now()
    assert after.busy >= before.busy > 0
