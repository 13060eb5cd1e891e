"""The number of CPUs that a process may use, in simulated control groups."""

import os

import pytest

from neocpu.foundation import host
from neocpu.foundation.host import usable_cores, usable_cpus, usable_memory


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "garbage\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"cpu.max": "max 100000\n", "a/cpu.max": "100000 100000\n"}, 1),
        ("0::/host/path\n", {"cpu.max": "100000 100000\n"}, 1),
        (
            "4:memory:/\n2:cpu,cpuacct:/job\n",
            {"cpu/job/cpu.cfs_quota_us": "100000\n", "cpu/job/cpu.cfs_period_us": "100000\n"},
            1,
        ),
        ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_cpu_quota(tmp_path, groups, files, expected):
    membership = tmp_path / "cgroup"
    membership.write_text(groups)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cpus = len(os.sched_getaffinity(0))
    assert usable_cpus(tmp_path / "fs", membership) == (cpus if expected is None else expected)


def test_a_host_without_control_groups_offers_all_its_cpus(tmp_path):
    assert usable_cpus(tmp_path, tmp_path / "none") == len(os.sched_getaffinity(0))


def test_affinity_limits(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert usable_cpus(tmp_path, tmp_path / "none") == 3


def test_logical_cpus_of_one_core_count_once(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5})
    monkeypatch.setattr(host, "usable_cpus", lambda: 4)
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert usable_cores(tmp_path) == 2
    assert usable_cores(tmp_path / "none") == 4
    monkeypatch.setattr(host, "usable_cpus", lambda: 1)
    assert usable_cores(tmp_path) == 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.max", "67108864", 1 << 26),
        ("memory.max", "max", None),
        ("memory/memory.limit_in_bytes", "33554432", 1 << 25),
        ("memory/memory.limit_in_bytes", "9223372036854771712", None),
        ("memory.max", "much", None),
    ],
)
def test_memory_is_the_control_group_s(tmp_path, name, text, expected):
    file = tmp_path / "fs" / name
    file.parent.mkdir(parents=True)
    file.write_text(text + "\n")
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/docker/abc\n0::/docker/abc\n")
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert usable_memory(tmp_path / "fs", membership) == (expected or installed)
