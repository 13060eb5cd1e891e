"""Latency of contenders, measured in interleaved rounds so that all see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, mismatch, paired_rows, relative_error
from neocpu.bench.engines.contenders import (
    NNCF,
    OWN_FLOAT,
    SIGNED,
    Contender,
    ContenderError,
    ContenderProcess,
    Failure,
    converted,
)
from neocpu.bench.engines.engine_session import AnyArray, Inputs
from neocpu.bench.engines.inputs_file import save_inputs
from neocpu.bench.results.machine import CpuTime, OtherLoad, own_cpu_seconds
from neocpu.bench.results.sample_statistics import (
    NOISY_SPREAD,
    Ratio,
    Rounds,
    percentile,
    ratio_of_medians,
    spread,
)
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import json_number

Start = Callable[[Contender, int | None, Path], ContenderProcess]


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """How much to measure.

    Attributes
    ----------
    rounds : int
        In each, every contender runs once in turn, in an order drawn anew.
    round_seconds : float
        How long the slowest contender's part of a round shall take.
    warmup_seconds : float
        How long every contender runs before the first round.
    seed : int
        Of the orders and of the confidence intervals.
    row_groups : tuple of tuple of int
        Outputs that describe the same detections, by position: see `agreement.paired_rows`.
    tolerance : float
        Norm-wise difference from the reference above which a contender computes something else.
    defaults : bool
        Leave every engine as it comes out of the box, its number of threads too.
    """

    rounds: int = 12
    round_seconds: float = 0.25
    warmup_seconds: float = 0.5
    seed: int = 0
    row_groups: tuple[tuple[int, ...], ...] = ()
    tolerance: float = MAX_RELATIVE_ERROR
    defaults: bool = False


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """What one contender did.

    Attributes
    ----------
    label, version : str
        The contender and its engine's version.
    rounds : tuple of tuple of float
        Seconds of every run, by round.
    load_seconds : float
        Importing the engine and loading the model.
    error : float
        Norm-wise relative difference of its outputs from the reference's; 0 for that one.
    peak_rss : int
        Most memory its process held, in bytes.
    mismatch : str
        Which outputs are not even comparable, such as ``boxes (153, 4) vs (152, 4)``; else empty.
    tolerance : float
        See `LatencyOptions`.
    computes_in : str
        See `Session`.
    """

    label: str
    version: str
    rounds: Rounds
    load_seconds: float
    error: float
    peak_rss: int = 0
    mismatch: str = ""
    tolerance: float = MAX_RELATIVE_ERROR
    computes_in: str = ""

    def percentile(self, percent: float) -> float:
        """Return a percentile of all runs, in seconds."""
        return percentile(self.rounds, percent)

    @property
    def median(self) -> float:
        """The median run, in seconds."""
        return self.percentile(50)

    @property
    def p50(self) -> float:
        """Half of the runs took no longer, in seconds."""
        return self.percentile(50)

    @property
    def p90(self) -> float:
        """Nine tenths of the runs took no longer, in seconds."""
        return self.percentile(90)

    @property
    def p99(self) -> float:
        """All but a hundredth of the runs took no longer, in seconds."""
        return self.percentile(99)

    @property
    def spread(self) -> float:
        """Relative distance between the rounds: see `sample_statistics.spread`."""
        return spread(self.rounds)

    @property
    def agrees(self) -> bool:
        """Whether its outputs are the reference's."""
        return self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """All contenders of one benchmark.

    Attributes
    ----------
    threads : int
        Of each contender.
    results : tuple of LatencyResult
        Those that finished, in the order given.
    failures : tuple of Failure
        The others.
    reference : str or None
        Whose outputs count as right.
    seed : int
        Of the confidence intervals.
    overruled : str or None
        Whose outputs should have counted as right, had not all others agreed on different ones.
    load : OtherLoad or None
        What else the machine did meanwhile.
    defaults : bool
        Whether engines had their own defaults instead of ``threads``.
    """

    threads: int
    results: tuple[LatencyResult, ...]
    failures: tuple[Failure, ...]
    reference: str | None
    seed: int = 0
    overruled: str | None = None
    load: OtherLoad | None = None
    defaults: bool = False

    def find(self, label: str) -> LatencyResult | None:
        """Return a contender's result; None if it failed or never ran."""
        return next((result for result in self.results if result.label == label), None)

    def ratio(self, numerator: LatencyResult, denominator: LatencyResult) -> Ratio:
        """Return the ratio of two contenders' medians."""
        return ratio_of_medians(numerator.rounds, denominator.rounds, self.seed)

    def speedup(self, label: str, over: str) -> Ratio:
        """Return how many times faster ``label`` is than ``over``; both must have a result."""
        fast, slow = self.find(label), self.find(over)
        assert fast is not None
        assert slow is not None
        return self.ratio(slow, fast)

    def best_peer(self, label: str = "neocpu") -> LatencyResult | None:
        """Return the fastest of the others that compute the right thing; None if there is none."""
        ours = (label, OWN_FLOAT)
        others = [result for result in self.results if result.label not in ours and result.agrees]
        return min(others, key=lambda result: result.median, default=None)

    @property
    def inconclusive(self) -> tuple[str, ...]:
        """What this measurement cannot tell: whether neocpu or its best peer is the faster."""
        own, best = self.find("neocpu"), self.best_peer("neocpu")
        if own is None or best is None or self.ratio(own, best).decided:
            return ()
        return (f"{own.label} and {best.label} are too close to tell apart.",)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know: failures, disagreements, noise."""
        failed = [f"{failure.label} failed: {failure.reason}" for failure in self.failures]
        wrong = [self._disagreement(result) for result in self.results if not result.agrees]
        return (*self._forms(), *failed, *wrong, *self._noise())

    def _forms(self) -> list[str]:
        """Say what contenders ran, where their labels do not."""
        said = []
        if self.defaults:
            said.append("every engine with its own defaults: threads, element types, the rest")
        if self.find(SIGNED) is not None:
            said.append(f"onnxruntime runs feature maps of uint8 (u8s8), {SIGNED} the same as int8")
        if self.find(NNCF) is not None:
            said.append(f"{NNCF} is the model as NNCF, OpenVINO's own quantiser, makes it")
        if wide := [r.label for r in self.results if r.computes_in == "f32"]:
            said.append(f"no bfloat16 on this CPU, float32 instead: {', '.join(wide)}")
        return said

    def _disagreement(self, result: LatencyResult) -> str:
        how = result.mismatch or (
            f"relative error {result.error:.2g}, tolerance {result.tolerance:g}"
        )
        against = f"{result.label} disagrees with {self.reference}"
        if result.label == self.overruled:
            against = f"{result.label} disagrees with all others, which agree with each other"
        return f"{against}: {how}"

    def _noise(self) -> list[str]:
        said = []
        if noisy := [r for r in self.results if r.spread > NOISY_SPREAD]:
            said.append(
                f"noisy machine: rounds of {', '.join(r.label for r in noisy)} differ by up to "
                f"{max(r.spread for r in noisy):.0%}; close other programs and use more --rounds"
            )
        if self.load is not None and self.load.disturbing:
            said.append(f"busy machine: {self.load} during the measurement")
        return said

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; times in seconds, ratios of each contender over each other."""
        return {
            "threads": self.threads,
            "defaults": self.defaults,
            "reference": self.reference,
            "overruled": self.overruled,
            "tolerance": next((r.tolerance for r in self.results), MAX_RELATIVE_ERROR),
            "results": [
                {
                    "label": r.label,
                    "version": r.version,
                    "median": r.median,
                    "p50": r.p50,
                    "p90": r.p90,
                    "p99": r.p99,
                    "spread": r.spread,
                    "load_seconds": r.load_seconds,
                    "peak_rss": r.peak_rss,
                    "relative_error": json_number(r.error),
                    "mismatch": r.mismatch,
                    "computes_in": r.computes_in,
                    "agrees": r.agrees,
                    "ratios": {
                        other.label: asdict(self.ratio(r, other))
                        for other in self.results
                        if other is not r
                    },
                    "rounds": r.rounds,
                }
                for r in self.results
            ],
            "failures": [asdict(failure) for failure in self.failures],
            "other_load": self.load and asdict(self.load),
            "inconclusive": self.inconclusive,
            "warnings": self.warnings,
        }


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
    """Run contenders in interleaved rounds; one that fails is reported, the others go on.

    Parameters
    ----------
    contenders : sequence of Contender
        With different labels.
    inputs : mapping of str to array
        The same for all.
    threads : int
        Of each contender.
    reference : str, optional
        The label whose outputs count as right; by default, or if it fails, the first contender's.
        If it differs from at least two others that agree with each other, theirs count.
    workspace : Path, optional
        Where models converted for a peer are kept, for the next measurement to find.
    start : callable
        Makes a contender's process.
    cpu_time : callable
        Reads the machine's counters.
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
        """Start every contender and keep its outputs."""
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
        """Return the CPU time that this process and the contenders', ended ones too, took."""
        return own_cpu_seconds() + sum(p.usage().cpu_seconds for p in self._started)

    def report(self, reference: str | None, load: OtherLoad) -> LatencyReport:
        """Return what came out."""
        if reference not in self._running:
            reference = next(iter(self._running), None)
        overruled = None
        if reference is not None and (trusted := self._trusted(reference)) != reference:
            reference, overruled = trusted, reference
        results = tuple(self._result(label, str(reference)) for label in self._running)
        return LatencyReport(
            self._threads,
            results,
            tuple(self._failures),
            reference,
            self._options.seed,
            overruled,
            load,
            self._options.defaults,
        )

    def _trusted(self, reference: str) -> str:
        """Return the reference, or one of the others if they all contradict it with one voice."""
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
        """Return the outputs of both, and how far apart they are."""
        both, how = (self._outputs[one], self._outputs[other]), self._options
        ours, theirs, missing = paired_rows(*both, how.row_groups, how.tolerance)
        return ours, theirs, max(relative_error(ours, theirs), missing)

    def _result(self, label: str, reference: str) -> LatencyResult:
        process = self._running[label]
        outputs, expected, error = self._compared(label, reference)
        return LatencyResult(
            label,
            process.version,
            tuple(self._rounds[label]),
            process.load_seconds,
            error,
            process.usage().peak_rss,
            mismatch(outputs, expected, self._running[reference].output_names),
            self._options.tolerance,
            process.computes_in,
        )

    def _run(self, label: str, times: int, untimed: int = 0) -> tuple[float, ...]:
        """Return the seconds of each run; nothing, and the contender is out, if it fails."""
        try:
            return self._running[label].run(times, untimed)
        except ContenderError as error:
            self._failures.append(Failure(label, str(error)))
            del self._running[label]
            return ()
