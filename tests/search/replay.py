"""Simulated measurements of real schemes, which estimates predict only roughly."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

from conv_workloads import conv_workload

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.measure import Measurement, ReplayMeasurer, Request
from neocpu.search.tuning_state import SearchSpace
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey
from neocpu.tuning_db.store import Store

FEATURES = ("avx", "avx2", "fma")
TARGET = CpuTarget(
    triple="x86_64-unknown-linux-gnu",
    mcpu="znver3",
    mattr=(),
    features=FEATURES,
    l1d=32 << 10,
    l2=512 << 10,
    l3=4 << 20,
)
OTHER_CPU = dataclasses.replace(TARGET, mcpu="haswell")
THREADS = 2
WORKLOADS = tuple(
    conv_workload(1, channels, size, size, channels, (3, 3), padding=(1, 1, 1, 1))
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7), (96, 35))
)
SPACE = SearchSpace(
    schemes=lambda workload: registry.schemes(workload, TARGET),
    estimate=lambda workload, scheme: registry.estimate(workload, scheme, TARGET, THREADS),
    template_version=registry.template_version,
)


def true_seconds(workload: Conv2dWorkload, scheme, target: CpuTarget = TARGET) -> float:
    """Return the estimate with an error of up to 60 % by scheme, and of 2 % at random."""
    estimate = registry.estimate(workload, scheme, target, THREADS)
    ic_bn, oc_bn = (getattr(scheme, name, 1) for name in ("ic_bn", "oc_bn"))
    reasons = 0.5 * math.sin(scheme.reg_n) + 0.3 * (oc_bn > 16) - 0.2 * (ic_bn > 8)
    luck = random.Random(f"{workload.key()} {scheme} {target.mcpu}").gauss(0.0, 0.02)
    return estimate * math.exp(0.6 * reasons + luck)


def recorded(workloads=WORKLOADS) -> dict[Request, Measurement]:
    """Return the measurement of every scheme."""
    requests = [Request(w, s) for w in workloads for s in SPACE.schemes(w)]
    return {r: Measurement(r, (true_seconds(r.workload, r.scheme),) * 2) for r in requests}


def records(workloads, target: CpuTarget = TARGET) -> list[Record]:
    """Return the records that an exhaustive run on ``target`` would leave."""
    return [
        Record(
            workload=workload,
            target=TargetKey.of(target, THREADS),
            scheme=scheme,
            result=Result((true_seconds(workload, scheme, target),)),
            env=Environment("0", "0", "0", registry.template_version(scheme.template)),
            time="2026-11-20T12:00:00+00:00",
        )
        for workload in workloads
        for scheme in registry.schemes(workload, target)
    ]


def open_store(path: Path) -> Store:
    """A database at the current template versions."""
    return Store.open([], path, registry.template_version)


class Spy(ReplayMeasurer):
    """A measurer that notes requests to measure, compare and check, in batches of eight."""

    batch = 8

    def __init__(self, recorded, wrong=None) -> None:
        super().__init__(recorded, wrong or {})
        self.measured: list[Request] = []
        self.compared: list[Request] = []
        self.checked: list[Request] = []

    def measure(self, requests):
        for measurement in super().measure(requests):
            self.measured.append(measurement.request)
            yield measurement

    def compare(self, requests, rounds):
        self.compared += requests
        return super().compare(requests, rounds)

    def check(self, requests):
        self.checked += requests
        return super().check(requests)
