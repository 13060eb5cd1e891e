"""Search strategies against each other: how good a network's kernels are after so many seconds.

One exhaustive run of the grid measures every candidate and is the reference. Then every strategy
tunes the network from an empty database, as `neocpu tune` does it, once per seed; and `xgb` once
more per seed with the records of other networks. At the end the schemes that each run had chosen by
certain moments are timed once more, all in turns, against the grid's own winners: what a run
measured itself is no fair judge of it, and neither is the grid, for the best of many noisy values
is too good.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from neocpu.progress import Progress, ProgressCallback
from neocpu.schedules import registry
from neocpu.schedules.scheme import Scheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import Conv2dWorkload
from neocpu.search.budget import Budget
from neocpu.search.measure import Measurer, Request
from neocpu.search.tuner import TuneProgress, TuneReport, tune
from neocpu.search.tuning_curve import CurvePoint, tuning_curve
from neocpu.search.tuning_state import TuningTask
from neocpu.tuning import make_strategy, search_space
from neocpu.tuning_db.record import Record, Workload
from neocpu.tuning_db.store import Store

GRID = "grid"
COMPARED = ("random", "xgb")
LEARNING = "xgb"
# Seconds at which runs are judged: of those from nothing, and of those that know other networks.
MOMENTS, WARM_MOMENTS = (10.0, 25.0, 60.0), (5.0, 10.0)
# Repeats of every scheme that is judged, and schemes judged in turns at a time.
ROUNDS, GROUP = 12, 40

Choices: TypeAlias = Mapping[Workload, Scheme]
Measurers: TypeAlias = Callable[[], AbstractContextManager[Measurer]]


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """What to run.

    Attributes
    ----------
    seeds : int
        Runs of each strategy that draws numbers; the grid draws none.
    history : tuple of Record
        Measurements of other networks, for the warm runs; none leaves these out.
    """

    seeds: int
    history: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class RaceRun:
    """One tuning run.

    Attributes
    ----------
    warm : bool
        Whether it knew other networks' records.
    curve : tuple of CurvePoint
        Valued by the grid's measurements.
    excess : dict of float to float
        By how much the network's convolutions take longer than with the grid's winners, relative,
        as judged in turns, with what was chosen after so many seconds.
    """

    strategy: str
    seed: int
    warm: bool
    trials: int
    seconds: float
    curve: tuple[CurvePoint, ...]
    excess: dict[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "warm": self.warm,
            "trials": self.trials,
            "seconds": self.seconds,
            "excess": {f"{moment:g}": value for moment, value in self.excess.items()},
            "curve": [[point.seconds, point.trials, point.cost] for point in self.curve],
        }


@dataclass(frozen=True, slots=True)
class RaceReport:
    """The runs of one network; the first is the grid's.

    Attributes
    ----------
    workloads, candidates : int
        Distinct convolutions, and their schemes in all.
    best : float
        Seconds of all convolutions of the network with the grid's winners, as judged in turns.
    """

    model: str
    workloads: int
    candidates: int
    best: float
    runs: tuple[RaceRun, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.model,
            "workloads": self.workloads,
            "candidates": self.candidates,
            "best_us": self.best * 1e6,
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True, slots=True)
class _Plan:
    """A run to come; ``history`` is what its database holds at the start."""

    strategy: str
    seed: int
    seconds: float | None
    history: tuple[Record, ...] = ()

    def __str__(self) -> str:
        return f"{self.strategy}, seed {self.seed}" + (", warm" if self.history else "")


@dataclass(frozen=True, slots=True)
class _Tuned:
    """A run before it is judged."""

    plan: _Plan
    events: tuple[TuneProgress, ...]
    report: TuneReport
    records: tuple[Record, ...]

    @property
    def moments(self) -> tuple[float, ...]:
        """When to judge it; the grid when it is done."""
        if self.plan.strategy == GRID:
            return (self.report.seconds,)
        return WARM_MOMENTS if self.plan.history else MOMENTS

    def choices(self, untuned: Choices, moment: float) -> Choices:
        """Return what a compilation would have chosen at a moment."""
        chosen = dict(untuned)
        for event in self.events:
            if event.seconds <= moment and event.chosen is not None:
                chosen[event.workload] = event.chosen
        if self.report.seconds <= moment:
            winners = (task.best for task in self.report.tasks)
            chosen |= {best.workload: best.scheme for best in winners if best is not None}
        return chosen


def race(
    model: str,
    convolutions: Iterable[Conv2dWorkload],
    target: CpuTarget,
    threads: int,
    options: RaceOptions,
    measurers: Measurers,
    on_progress: ProgressCallback,
) -> RaceReport:
    """Run all strategies on one network's convolutions; takes minutes.

    Parameters
    ----------
    measurers : callable
        Returns a new measurer for each run: starting one is part of a run's time.
    """
    counts: dict[Workload, int] = dict(Counter(convolutions))
    untuned = {workload: registry.schemes(workload, target)[0] for workload in counts}
    plans = _plans(counts, options)
    runs = []
    with tempfile.TemporaryDirectory(prefix="neocpu-race-") as folder:
        for number, plan in enumerate(plans):
            on_progress(Progress("race", number, len(plans) + 1, str(plan)))
            database = Path(folder) / f"{number}.jsonl"
            runs.append(_tune(counts, target, threads, plan, database, measurers))
    on_progress(Progress("race", len(plans), len(plans) + 1, "judging in turns"))
    chosen = [{moment: run.choices(untuned, moment) for moment in run.moments} for run in runs]
    judged = _judge([c for moments in chosen for c in moments.values()], measurers)
    (finished,) = chosen[0].values()
    best = _cost(counts, finished, judged)
    reference = {
        Request(record.workload, record.scheme): record.result.best for record in runs[0].records
    }
    return RaceReport(
        model,
        len(counts),
        sum(len(registry.schemes(workload, target)) for workload in counts),
        best,
        tuple(
            RaceRun(
                run.plan.strategy,
                run.plan.seed,
                bool(run.plan.history),
                run.report.measured,
                run.report.seconds,
                tuning_curve(counts, untuned, run.events, reference),
                {m: _cost(counts, c, judged) / best - 1 for m, c in moments.items()},
            )
            for run, moments in zip(runs, chosen, strict=True)
        ),
    )


def _plans(counts: Mapping[Workload, int], options: RaceOptions) -> list[_Plan]:
    seeds = range(options.seeds)
    plans = [_Plan(GRID, 0, None)]
    plans += [_Plan(name, seed, MOMENTS[-1]) for name in COMPARED for seed in seeds]
    others = tuple(record for record in options.history if record.workload not in counts)
    if others:
        plans += [_Plan(LEARNING, seed, WARM_MOMENTS[-1], others) for seed in seeds]
    return plans


def _tune(
    counts: Mapping[Workload, int],
    target: CpuTarget,
    threads: int,
    plan: _Plan,
    database: Path,
    measurers: Measurers,
) -> _Tuned:
    """Tune from a database that holds the plan's history alone."""
    known = database.with_suffix(".history")
    known.write_text("".join(record.to_line() for record in plan.history))
    store = Store.open([known], database, registry.template_version)
    events: list[TuneProgress] = []
    with measurers() as measurer:
        report = tune(
            [TuningTask(workload, count) for workload, count in counts.items()],
            target=target,
            threads=threads,
            store=store,
            measurer=measurer,
            strategy=make_strategy(plan.strategy, target, threads, store, plan.seed),
            space=search_space(target, threads),
            budget=Budget(seconds=plan.seconds),
            on_progress=events.append,
        )
    records = tuple(record for record in store if record.workload in counts)
    return _Tuned(plan, tuple(events), report, records)


def _judge(choices: Sequence[Choices], measurers: Measurers) -> dict[Request, float]:
    """Return the median seconds of everything that was chosen, schemes of a workload in turns."""
    distinct = dict.fromkeys(
        Request(workload, chosen[workload]) for workload in choices[0] for chosen in choices
    )
    requests = list(distinct)
    seconds: dict[Request, float] = {}
    with measurers() as measurer:
        for at in range(0, len(requests), GROUP):
            for measurement in measurer.compare(requests[at : at + GROUP], ROUNDS):
                times = measurement.seconds
                seconds[measurement.request] = statistics.median(times) if times else math.inf
    return seconds


def _cost(
    counts: Mapping[Workload, int], chosen: Choices, seconds: Mapping[Request, float]
) -> float:
    return sum(count * seconds[Request(w, chosen[w])] for w, count in counts.items())
