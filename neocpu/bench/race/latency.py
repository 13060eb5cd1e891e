"""Latency of contenders, measured in interleaved rounds so that all see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, mismatch, paired_rows, relative_error
from neocpu.bench.engines.contenders import (
    Contender,
    ContenderError,
    ContenderProcess,
    Failure,
    converted,
)
from neocpu.bench.engines.engine_session import AnyArray, Inputs, save_inputs
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult, ScalingReport
from neocpu.foundation.machine.machine_info import CpuTime, OtherLoad, own_cpu_seconds
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import plural

Start = Callable[[Contender, int | None, Path], ContenderProcess]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    rounds: int = 12  # rounds; each has every contender once, in an order drawn anew
    round_seconds: float = 0.25  # the intended time of the slowest contender's part of a round
    warmup_seconds: float = 0.5  # the time that every contender runs before the first round
    seed: int = 0  # the seed of the orders and of the confidence intervals
    row_groups: tuple[tuple[int, ...], ...] = ()  # see `agreement.paired_rows`
    tolerance: float = MAX_RELATIVE_ERROR  # largest norm-wise difference from the reference
    defaults: bool = False  # whether engines have their own defaults, threads too


def measure_latency(
    contenders: Sequence[Contender],
    inputs: Inputs,
    threads: int,
    options: LatencyOptions = LatencyOptions(),
    *,
    reference: str | None = None,
    workspace: Path | None = None,
    start: Start = ContenderProcess,
    cpu_time: Callable[[], CpuTime] = CpuTime.now,
    on_progress: ProgressCallback = silent,
) -> LatencyReport:
    """Run contenders in interleaved rounds. One that fails is reported, and the others go on.

    reference: label of the contender whose outputs count as right, by default the first one, unless
        at least two others agree on different ones.
    workspace: folder of models converted for a peer, where later measurements find them.
    """
    assert len({contender.label for contender in contenders}) == len(contenders)
    race = _Race(threads, options, start, on_progress)
    with ExitStack() as stack, TemporaryFolder("bench") as folder:
        path = Path(folder) / "inputs.npz"
        save_inputs(path, inputs)
        race.load(contenders, path, workspace or Path(folder), stack)
        race.warm_up()
        before, own = cpu_time(), race.cpu_seconds()
        race.run_rounds()
        load = before.other_load(cpu_time(), race.cpu_seconds() - own)
        return race.report(reference, load)


class _Race:
    """The state of one measurement; contenders drop out of ``_running`` when they fail."""

    def __init__(
        self, threads: int, options: LatencyOptions, start: Start, report: ProgressCallback
    ) -> None:
        self._threads = threads
        self._options = options
        self._start = start
        self._progress = report
        self._started: list[ContenderProcess] = []
        self._running: dict[str, ContenderProcess] = {}
        self._outputs: dict[str, tuple[AnyArray, ...]] = {}
        self._rounds: dict[str, list[tuple[float, ...]]] = {}
        self._failures: list[Failure] = []
        self._times = 1

    def load(
        self, contenders: Sequence[Contender], inputs: Path, workspace: Path, stack: ExitStack
    ) -> None:
        for number, contender in enumerate(contenders):
            label = contender.label
            self._progress(Progress("load", number, len(contenders), label))
            try:
                ready = converted(contender, workspace)
                threads = None if self._options.defaults else self._threads
                process = stack.enter_context(self._start(ready, threads, inputs))
                self._started.append(process)
                self._outputs[label] = process.outputs()
            except ContenderError as error:
                self._failures.append(Failure(label, str(error)))
            else:
                self._running[label] = process
                self._rounds[label] = []

    def warm_up(self) -> None:
        """Run every contender for a while, and choose how often it runs in a round."""
        slowest = 0.0
        for label in tuple(self._running):
            self._progress(Progress("warm up", detail=label))
            seconds: list[float] = []
            end = time.perf_counter() + self._options.warmup_seconds
            while label in self._running and (len(seconds) < 2 or time.perf_counter() < end):
                seconds += self._run(label, 2)
            slowest = max(slowest, statistics.median(seconds or [0.0]))
        if slowest > 0:
            self._times = max(3, min(200, round(self._options.round_seconds / slowest)))

    def run_rounds(self) -> None:
        """Let every contender run in every round, in an order drawn anew each time."""
        rng = np.random.default_rng(self._options.seed)
        for number in range(self._options.rounds):
            self._progress(Progress("measure", number, self._options.rounds))
            for label in rng.permutation(sorted(self._running)):
                if seconds := self._run(str(label), self._times, untimed=1):
                    self._rounds[str(label)].append(seconds)
        self._progress(Progress("measure", self._options.rounds, self._options.rounds))

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process and of all contenders' processes, ended ones too."""
        return own_cpu_seconds() + sum(p.usage().cpu_seconds for p in self._started)

    def report(self, reference: str | None, load: OtherLoad) -> LatencyReport:
        if reference not in self._running:
            reference = next(iter(self._running), None)
        overruled = None
        if reference is not None and (trusted := self._trusted(reference)) != reference:
            reference, overruled = trusted, reference
        results = tuple(self._result(label, str(reference)) for label in self._running)
        return LatencyReport(
            threads=self._threads,
            results=results,
            failures=tuple(self._failures),
            reference=reference,
            seed=self._options.seed,
            overruled=overruled,
            load=load,
            defaults=self._options.defaults,
        )

    def _trusted(self, reference: str) -> str:
        """Return the reference, or another contender if all others agree against it."""
        first, *others = [label for label in self._running if label != reference] or [reference]
        one_voice = others and all(self._agree(first, other) for other in others)
        if one_voice and not any(self._agree(reference, label) for label in (first, *others)):
            return first
        return reference

    def _agree(self, one: str, other: str) -> bool:
        *_, error = self._compared(one, other)
        return error <= self._options.tolerance

    def _compared(
        self, one: str, other: str
    ) -> tuple[Sequence[AnyArray], Sequence[AnyArray], float]:
        both, how = (self._outputs[one], self._outputs[other]), self._options
        ours, theirs, missing = paired_rows(*both, how.row_groups, how.tolerance)
        return ours, theirs, max(relative_error(ours, theirs), missing)

    def _result(self, label: str, reference: str) -> LatencyResult:
        process = self._running[label]
        outputs, expected, error = self._compared(label, reference)
        return LatencyResult(
            label=label,
            version=process.version,
            rounds=tuple(self._rounds[label]),
            load_seconds=process.load_seconds,
            error=error,
            peak_rss=process.usage().peak_rss,
            mismatch=mismatch(outputs, expected, self._running[reference].output_names),
            tolerance=self._options.tolerance,
            computes_in=process.computes_in,
        )

    def _run(self, label: str, times: int, untimed: int = 0) -> tuple[float, ...]:
        """Return the seconds of each run; if it fails, nothing, and the contender is dropped."""
        try:
            return self._running[label].run(times, untimed)
        except ContenderError as error:
            self._failures.append(Failure(label, str(error)))
            del self._running[label]
            return ()


def measure_scaling(
    make_contenders: Callable[[int], Sequence[Contender]],
    inputs: Inputs,
    thread_counts: Sequence[int],
    options: LatencyOptions,
    on_progress: ProgressCallback = silent,
    *,
    reference: str | None = None,
    workspace: Path | None = None,
) -> ScalingReport:
    """Measure latency at each number of threads, in ascending order.

    make_contenders: returns the contenders for a number of threads.
    reference, workspace: see `neocpu.bench.race.latency.measure_latency`.
    """
    counts = sorted(set(thread_counts))
    reports = {}
    with TemporaryFolder("bench") as folder:
        for number, threads in enumerate(counts):
            if len(counts) > 1:
                detail = plural(threads, "thread")
                on_progress(Progress("scaling", number, len(counts), detail))
            reports[threads] = measure_latency(
                make_contenders(threads),
                inputs,
                threads,
                options,
                reference=reference,
                workspace=workspace or Path(folder),
                on_progress=on_progress,
            )
    return ScalingReport(reports)
