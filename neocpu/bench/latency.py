"""Latency of contenders, measured in interleaved rounds so that all see the same machine."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.bench.contenders import Contender, ContenderError, ContenderProcess
from neocpu.bench.engines import AnyArray, Inputs
from neocpu.bench.inputs import save_inputs
from neocpu.bench.statistics import (
    NOISY_SPREAD,
    Ratio,
    Rounds,
    percentile,
    ratio_of_medians,
    spread,
)
from neocpu.progress import Progress, ProgressCallback, silent

MAX_RELATIVE_ERROR: Final = 1e-3
"""Norm-wise difference from the reference above which a contender computes something else."""

Start = Callable[[Contender, int, Path], ContenderProcess]


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
    """

    rounds: int = 12
    round_seconds: float = 0.25
    warmup_seconds: float = 0.5
    seed: int = 0


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
    """

    label: str
    version: str
    rounds: Rounds
    load_seconds: float
    error: float

    def percentile(self, percent: float) -> float:
        """Return a percentile of all runs, in seconds."""
        return percentile(self.rounds, percent)

    @property
    def median(self) -> float:
        """The median run, in seconds."""
        return self.percentile(50)

    @property
    def spread(self) -> float:
        """Relative distance between the rounds: see `neocpu.bench.statistics.spread`."""
        return spread(self.rounds)

    @property
    def agrees(self) -> bool:
        """Whether its outputs are the reference's."""
        return self.error <= MAX_RELATIVE_ERROR


@dataclass(frozen=True, slots=True)
class Failure:
    """A contender that is out, and why, in one line."""

    label: str
    reason: str


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
    """

    threads: int
    results: tuple[LatencyResult, ...]
    failures: tuple[Failure, ...]
    reference: str | None
    seed: int = 0

    def find(self, label: str) -> LatencyResult | None:
        """Return a contender's result; None if it failed or never ran."""
        return next((result for result in self.results if result.label == label), None)

    def ratio(self, numerator: LatencyResult, denominator: LatencyResult) -> Ratio:
        """Return the ratio of two contenders' medians."""
        return ratio_of_medians(numerator.rounds, denominator.rounds, self.seed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know: failures, disagreements, noise."""
        failed = [f"{failure.label} failed: {failure.reason}" for failure in self.failures]
        wrong = [
            f"{result.label} disagrees with {self.reference}: relative error {result.error:.2g}"
            for result in self.results
            if not result.agrees
        ]
        noisy = [r for r in self.results if r.spread > NOISY_SPREAD]
        if not noisy:
            return (*failed, *wrong)
        noise = (
            f"noisy machine: rounds of {', '.join(r.label for r in noisy)} differ by up to "
            f"{max(r.spread for r in noisy):.0%}; close other programs and use more --rounds"
        )
        return (*failed, *wrong, noise)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; times in seconds, ratios of each contender over each other."""
        return {
            "threads": self.threads,
            "reference": self.reference,
            "results": [
                {
                    "label": r.label,
                    "version": r.version,
                    "median": r.median,
                    "p90": r.percentile(90),
                    "p99": r.percentile(99),
                    "spread": r.spread,
                    "load_seconds": r.load_seconds,
                    "relative_error": r.error if math.isfinite(r.error) else None,
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
            "warnings": self.warnings,
        }


def measure_latency(
    contenders: Sequence[Contender],
    inputs: Inputs,
    threads: int,
    options: LatencyOptions = LatencyOptions(),
    *,
    reference: str | None = None,
    start: Start = ContenderProcess,
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
    start : callable
        Makes a contender's process.
    """
    assert len({contender.label for contender in contenders}) == len(contenders)
    race = _Race(threads, options, start, on_progress)
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="neocpu-bench-") as folder:
        path = Path(folder) / "inputs.npz"
        save_inputs(path, inputs)
        race.load(contenders, path, stack)
        race.warm_up()
        race.run_rounds()
    return race.report(reference)


class _Race:
    """The state of one measurement; contenders drop out of ``_running`` when they fail."""

    def __init__(
        self, threads: int, options: LatencyOptions, start: Start, report: ProgressCallback
    ) -> None:
        self._threads = threads
        self._options = options
        self._start = start
        self._progress = report
        self._running: dict[str, ContenderProcess] = {}
        self._outputs: dict[str, tuple[AnyArray, ...]] = {}
        self._rounds: dict[str, list[tuple[float, ...]]] = {}
        self._failures: list[Failure] = []
        self._times = 1

    def load(self, contenders: Sequence[Contender], inputs: Path, stack: ExitStack) -> None:
        """Start every contender and keep its outputs."""
        for number, contender in enumerate(contenders):
            label = contender.label
            self._progress(Progress("load", number, len(contenders), label))
            try:
                process = stack.enter_context(self._start(contender, self._threads, inputs))
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

    def report(self, reference: str | None) -> LatencyReport:
        """Return what came out."""
        if reference not in self._running:
            reference = next(iter(self._running), None)
        results = tuple(
            LatencyResult(
                label,
                process.version,
                tuple(self._rounds[label]),
                process.load_seconds,
                relative_error(self._outputs[label], self._outputs[str(reference)]),
            )
            for label, process in self._running.items()
        )
        failures = tuple(self._failures)
        return LatencyReport(self._threads, results, failures, reference, self._options.seed)

    def _run(self, label: str, times: int, untimed: int = 0) -> tuple[float, ...]:
        """Return the seconds of each run; nothing, and the contender is out, if it fails."""
        try:
            return self._running[label].run(times, untimed)
        except ContenderError as error:
            self._failures.append(Failure(label, str(error)))
            del self._running[label]
            return ()


def relative_error(outputs: Sequence[AnyArray], reference: Sequence[AnyArray]) -> float:
    """Return the largest ``‖y - r‖ / ‖r‖`` over all outputs; ``inf`` if shapes or NaNs differ."""
    if len(outputs) != len(reference):
        return math.inf
    return max((_norm_error(y, r) for y, r in zip(outputs, reference, strict=True)), default=0.0)


def _norm_error(output: AnyArray, reference: AnyArray) -> float:
    if output.shape != reference.shape:
        return math.inf
    if np.array_equal(output, reference, equal_nan=output.dtype.kind == "f"):
        return 0.0
    y, r = output.astype(np.float64), reference.astype(np.float64)
    norm = float(np.linalg.norm(r))
    error = float(np.linalg.norm(y - r)) / (norm or 1.0)
    return error if math.isfinite(error) else math.inf
