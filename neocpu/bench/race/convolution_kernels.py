"""Kernel quality: the share of the machine's peak that each convolution of a network reaches."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neocpu.bench.limits.kernel_runner import KernelRunner, TimedKernel
from neocpu.bench.limits.peak import fma_flops, fma_peak
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.plan.members import members
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.tuning_db.store import Store

ROUNDS: Final = 40


@dataclass(frozen=True, slots=True)
class KernelCase:
    workload: Conv2dWorkload
    count: int  # the number of times that the network has it
    scheme: Scheme
    source: str  # ``measured`` if a tuning database knows the scheme, else ``estimated``


@dataclass(frozen=True, slots=True)
class KernelResult:
    case: KernelCase
    seconds: float  # the time of the fastest sample, with the weights in the cache if they fit
    share: float  # of the machine's FMA peak, counting the operations of direct convolution

    @property
    def gflops(self) -> float:
        """1e9 operations of direct convolution per second."""
        return self.case.workload.flops / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class KernelReport:
    threads: int
    peak_gflops: float  # in 1e9 per second, measured between the convolutions
    results: tuple[KernelResult, ...]

    @property
    def mean_share(self) -> float:
        return statistics.fmean(result.share for result in self.results)

    @property
    def min_share(self) -> float:
        return min(result.share for result in self.results)

    def to_json(self) -> JsonObject:
        return {
            **members(self, "threads peak_gflops mean_share min_share"),
            "kernels": [
                {
                    "workload": str(result.case.workload),
                    **members(result.case, "count scheme source"),
                    **members(result, "seconds gflops share"),
                }
                for result in self.results
            ],
        }


def best_cases(
    workloads: Iterable[Conv2dWorkload], store: Store, target: CpuTarget, threads: int
) -> tuple[KernelCase, ...]:
    """Return distinct workloads with their best schemes. Raises UnsupportedError: one has none."""
    cases = []
    for workload, count in Counter(workloads).items():
        record = store.best(workload, target, threads)
        if record is not None:
            cases.append(KernelCase(workload, count, record.scheme, "measured"))
        else:
            scheme = min(
                registry.schemes(workload, target),
                key=lambda scheme: registry.estimate(workload, scheme, target, threads),
            )
            cases.append(KernelCase(workload, count, scheme, "estimated"))
    return tuple(cases)


def measure_kernels(
    cases: Sequence[KernelCase],
    target: CpuTarget,
    threads: int,
    rounds: int = ROUNDS,
    on_progress: ProgressCallback = silent,
) -> KernelReport:
    """Time kernels and the FMA peak in rounds; best samples count: other programs only slow down.

    Raises TargetError: this machine cannot run code for ``target``.
    """
    assert cases
    with KernelRunner(target, threads) as runner:
        peak = fma_peak(runner)
        kernels = []
        for number, case in enumerate(cases):
            on_progress(Progress("build kernels", number, len(cases), str(case.workload)))
            kernels.append(_build(case, runner))
        for number in range(rounds):
            on_progress(Progress("time kernels", number, rounds))
            for kernel in (peak, *kernels):
                kernel.sample()
    best = fma_flops(target, threads) / peak.best
    results = tuple(
        KernelResult(case, kernel.best, case.workload.flops / kernel.best / best)
        for case, kernel in zip(cases, kernels, strict=True)
    )
    return KernelReport(threads, best / 1e9, results)


def _build(case: KernelCase, runner: KernelRunner) -> TimedKernel:
    function = registry.lower(case.workload, case.scheme, runner.target, runner.threads)
    rng = np.random.default_rng(0)  # around one: denormals, which are slow, do not come up
    arrays = [
        rng.uniform(-1, 1, shape).astype(dtype)
        for shape, dtype in registry.argument_shapes(case.workload, case.scheme)
    ]
    return runner.build(function, arrays)
