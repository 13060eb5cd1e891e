"""Host detection against LLVM's names and made-up control groups."""

import os

import pytest

from neocpu.schedules import host
from neocpu.schedules.host import (
    _LLVM_NAMES,
    host_features,
    missing_features,
    usable_cores,
    usable_cpus,
)

SKYLAKE = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8168
flags\t\t: fpu sse sse2 pni ssse3 fma sse4_1 sse4_2 abm avx avx2 bmi1 avx512f avx512_vnni
bugs\t\t: spectre_v1
"""
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd aes crc32 atomics fphp asimdhp asimddp\n"


def test_x86_names():
    features = host_features(SKYLAKE)
    assert {"sse3", "sse4.1", "sse4.2", "lzcnt", "bmi", "avx512f", "avx512vnni", "fma"} <= features
    assert missing_features(("avx2", "avx512f", "amx-tile"), features) == ("amx-tile",)


def test_aarch64_names():
    assert {"neon", "dotprod", "fullfp16", "lse", "crc"} <= host_features(GRAVITON)


def test_unknown_format_offers_nothing():
    assert host_features("processor : 0\n") == frozenset()


def test_renamed_features_are_llvms_own():
    import tvm

    features = tvm.get_global_func("target.llvm_get_cpu_features")
    known = set()
    for triple, cpus in (
        ("x86_64-linux-gnu", ("diamondrapids", "tigerlake", "znver5")),
        ("aarch64-linux-gnu", ("neoverse-v2",)),
    ):
        for cpu in cpus:
            target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})
            known |= {str(name) for name in features(target)}
    assert set(_LLVM_NAMES.values()) <= known


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
        (
            "2:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
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


def test_no_control_groups(tmp_path):
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
