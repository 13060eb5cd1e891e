"""Search strategies against each other: how good a network's kernels are after so many seconds.

Every strategy tunes the network from an empty database, as `neocpu tune` does it, the exhaustive
grid once, the others once per seed, and `xgb` once more per seed with the records of other
networks. Then every scheme that a run would have chosen at some moment is timed once more, those of
a convolution in turns. What a run measured itself is no fair judge of it: the best of many noisy
values is too good.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.compilation.network_tuning import make_strategy, search_space
from neocpu.compilation.read_model import convolutions
from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import json_number
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.budget import Budget
from neocpu.search.measuring.measure import Measurer, Request
from neocpu.search.tuner import TuneProgress, TuneReport, tune
from neocpu.search.tuning_curve import CurvePoint, tuning_curve
from neocpu.search.tuning_state import TuningTask
from neocpu.tuning_db.record import Record, Workload
from neocpu.tuning_db.store import Store

GRID = "grid"
COMPARED = ("random", "xgb")
LEARNING = "xgb"
# Seconds at which runs are judged: of those from nothing, and of those that know other networks.
MOMENTS, WARM_MOMENTS = (10.0, 25.0, 60.0), (5.0, 10.0)
# Repeats of every scheme that is judged.
ROUNDS = 12

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
        Seconds of the network's convolutions with what was chosen at each moment, as judged.
    excess : dict of float to float
        By how much that is more than with the grid's winners, relative, after so many seconds.
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
            "excess": {f"{moment:g}": json_number(x) for moment, x in self.excess.items()},
            "curve": [[one.seconds, one.trials, json_number(one.cost)] for one in self.curve],
        }


@dataclass(frozen=True, slots=True)
class RaceReport:
    """The runs of one network; the first is the grid's.

    Attributes
    ----------
    workloads, candidates : int
        Distinct convolutions, and their schemes in all.
    best : float
        Seconds of all convolutions of the network with the grid's winners, as judged.
    """

    model: str
    workloads: int
    candidates: int
    best: float
    runs: tuple[RaceRun, ...]

    def __str__(self) -> str:
        return f"{self.model}: {self.best * 1e3:.2f} ms of convolutions after {len(self.runs)} runs"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.model,
            "workloads": self.workloads,
            "candidates": self.candidates,
            "best_us": json_number(self.best * 1e6),
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

    @property
    def moments(self) -> tuple[float, ...]:
        """When to look at it; at the grid when it is done."""
        if self.plan.strategy == GRID:
            return (self.report.seconds,)
        return WARM_MOMENTS if self.plan.history else MOMENTS


def race_models(
    models: Sequence[str],
    shapes: InputShapes,
    target: CpuTarget,
    threads: int,
    options: RaceOptions,
    measurers: Measurers,
    on_progress: ProgressCallback,
) -> Iterator[RaceReport | ModelFailure]:
    """Run all strategies on one model after another, and yield what came out of each.

    Parameters
    ----------
    models : sequence of str
        ``.onnx`` files or built-in names.
    shapes : InputShapes
    """

    def measure(_: int, model: str) -> RaceReport:
        found, name = convolutions(model, shapes), Path(model).stem
        if not found:
            raise UsageError(f"{name} has no convolutions to tune")
        return race(name, found, target, threads, options, measurers, on_progress)

    return measure_each(models, measure)


def race(
    model: str,
    workloads: Iterable[Conv2dWorkload],
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
    counts: dict[Workload, int] = dict(Counter(workloads))
    untuned = {workload: registry.schemes(workload, target)[0] for workload in counts}
    plans = _plans(counts, options)
    runs = []
    with TemporaryFolder("race") as folder:
        for number, plan in enumerate(plans):
            step = Progress("race", number, len(plans) + 1, f"{model}: {plan}")
            on_progress(step)
            database = Path(folder) / f"{number}.jsonl"
            told = partial(_tell, on_progress, step)
            runs.append(_tune(counts, target, threads, plan, database, measurers, told))
    on_progress(Progress("race", len(plans), len(plans) + 1, f"{model}: judging in turns"))
    judged = _judge(untuned, runs, measurers)
    curves = [tuning_curve(counts, untuned, run.events, judged) for run in runs]
    best = curves[0][-1].cost
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
                curve,
                {moment: cost_at(curve, moment) / best - 1 for moment in run.moments},
            )
            for run, curve in zip(runs, curves, strict=True)
        ),
    )


def _tell(on_progress: ProgressCallback, step: Progress, event: TuneProgress) -> None:
    detail = f"{step.detail}, {event.trials} of {event.total} schemes"
    on_progress(replace(step, detail=detail))


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
    on_event: Callable[[TuneProgress], None],
) -> _Tuned:
    """Tune from a database that holds the plan's history alone."""
    known = database.with_suffix(".history")
    known.write_text("".join(record.to_line() for record in plan.history))
    store = Store.open([known], database, registry.template_version)
    events: list[TuneProgress] = []

    def note(event: TuneProgress) -> None:
        events.append(event)
        on_event(event)

    with measurers() as measurer:
        report = tune(
            [TuningTask(workload, (count,)) for workload, count in counts.items()],
            target=target,
            threads=threads,
            store=store,
            measurer=measurer,
            strategy=make_strategy(plan.strategy, target, threads, store, plan.seed),
            space=search_space(target, threads),
            budget=Budget(seconds=plan.seconds),
            on_progress=note,
        )
    return _Tuned(plan, tuple(events), report)


def _judge(
    untuned: Mapping[Workload, Scheme], runs: Sequence[_Tuned], measurers: Measurers
) -> dict[Request, float]:
    """Return the median seconds of everything that was ever chosen, by workload and in turns."""
    chosen: dict[Workload, dict[Scheme, None]] = {w: {s: None} for w, s in untuned.items()}
    for event in (event for run in runs for event in run.events):
        if event.chosen is not None:
            chosen[event.workload][event.chosen] = None
    seconds: dict[Request, float] = {}
    with measurers() as measurer:
        for workload, schemes in chosen.items():
            requests = [Request(workload, scheme) for scheme in schemes]
            for measurement in measurer.compare(requests, ROUNDS):
                times = measurement.seconds
                seconds[measurement.request] = statistics.median(times) if times else math.inf
    return seconds


def cost_at(curve: Sequence[CurvePoint], moment: float) -> float:
    """Return what is chosen at a moment takes; a run that has ended keeps its choice."""
    return [point.cost for point in curve if point.seconds <= moment][-1]
