"""Records to store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from conv_workloads import conv_workload

from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.tuning_db.packed import pack
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey
from neocpu.tuning_db.store import Store

TARGET = CpuTarget(
    triple="x86_64-unknown-linux-gnu",
    mcpu="znver5",
    mattr=(),
    features=("avx2", "fma"),
    l1d=48,
    l2=1024,
    l3=4096,
)
WORKLOAD = conv_workload(
    1, 64, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1), epilogue=(EpilogueOp("clip", (0.0, 6.0)),)
)
RECORD = Record(
    workload=WORKLOAD,
    target=TargetKey.of(TARGET, 2),
    scheme=DirectScheme(16, 32, reg_n=7, unroll_ker=True),
    result=Result((1e-3, 1.5e-3, 1.25e-3)),
    env=Environment("0.1.0", "0.27.0", "0.1.14", 3),
    time="2026-11-20T12:00:00+00:00",
)


def record(*seconds: float, error: str | None = None, version: int = 3, **scheme: int) -> Record:
    """RECORD with another result, template version and scheme parameters."""
    return dataclasses.replace(
        RECORD,
        result=Result(seconds, error),
        env=dataclasses.replace(RECORD.env, template_version=version),
        scheme=dataclasses.replace(RECORD.scheme, **scheme),
    )


def write_packed(path: Path, *records: Record) -> Path:
    """Write a packed file."""
    path.write_bytes(pack(records))
    return path


def open_store(path: Path | None, *paths: Path) -> Store:
    """Open with templates at version 3."""
    return Store.open(paths, path, lambda name: 3)
