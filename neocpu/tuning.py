"""Tuning a network's convolutions: which databases, which space, which machine."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from neocpu.planning.costs import Measured
from neocpu.progress import Progress, ProgressCallback
from neocpu.schedules import registry
from neocpu.schedules.errors import UsageError, did_you_mean
from neocpu.schedules.scheme import Scheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import Conv2dWorkload
from neocpu.search.local_measurer import LocalMeasurer
from neocpu.search.strategies import Strategy
from neocpu.search.strategies.grid import GridStrategy
from neocpu.search.strategies.random import RandomStrategy
from neocpu.search.tuner import Budget, SearchSpace, TuneProgress, TuneReport, TuningTask, tune
from neocpu.tuning_db.store import Store, default_database, shipped_databases

_log = logging.getLogger("neocpu")
# A foreign file would otherwise print all of itself.
MAX_WARNINGS = 3

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "grid": GridStrategy,
    "random": lambda: RandomStrategy(seed=0),
}


def open_store(databases: Sequence[str | os.PathLike[str]]) -> Store:
    """Layer the shipped records, the user's own, and ``databases``; the last one is written.

    Raises
    ------
    DatabaseError
        If a file cannot be read.
    """
    named = [Path(path) for path in databases]
    user = default_database()
    readable = list(shipped_databases())
    if named and user.exists():
        readable.append(user)
    *others, last = named or [user]
    store = Store.open([*readable, *others], last, registry.template_version)
    for skipped in store.skipped[:MAX_WARNINGS]:
        _log.warning("%s", skipped)
    if len(store.skipped) > MAX_WARNINGS:
        _log.warning("%d more lines skipped", len(store.skipped) - MAX_WARNINGS)
    return store


def measured_schemes(
    store: Store, target: CpuTarget, threads: int, workload: Conv2dWorkload
) -> Measured:
    """Return the best seconds of each scheme on record; None for one that failed."""
    return {
        scheme: record.result.best if record.result.error is None else None
        for scheme, record in store.results(workload, target, threads).items()
    }


def make_strategy(name: str) -> Strategy:
    """Return the named search strategy.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise UsageError(f"unknown --strategy {name!r}; known: {', '.join(STRATEGIES)}{hint}")
    return STRATEGIES[name]()


def tune_workloads(
    workloads: Iterable[Conv2dWorkload],
    target: CpuTarget,
    threads: int,
    store: Store,
    strategy: Strategy,
    budget: Budget,
    on_progress: ProgressCallback,
) -> TuneReport:
    """Measure what ``store`` does not know of ``workloads``, on this machine.

    Raises
    ------
    TargetError
        If this machine cannot run code for ``target``.
    DatabaseError
        If ``store`` cannot be written.
    """
    tasks = [TuningTask(workload, count) for workload, count in Counter(workloads).items()]
    space = SearchSpace(
        schemes=partial(_schemes, target=target),
        estimate=lambda workload, scheme: registry.estimate(workload, scheme, target, threads),
        template_version=registry.template_version,
    )
    with LocalMeasurer(target, threads) as measurer:
        return tune(
            tasks,
            target=target,
            threads=threads,
            store=store,
            measurer=measurer,
            strategy=strategy,
            space=space,
            budget=budget,
            on_progress=lambda state: on_progress(_progress(state, budget)),
        )


def _schemes(workload: Conv2dWorkload, target: CpuTarget) -> Sequence[Scheme]:
    return registry.schemes(workload, target)


def _progress(state: TuneProgress, budget: Budget) -> Progress:
    failed = f", {state.failed} failed" if state.failed else ""
    detail = f"{_time_left(state, budget)} left; {state.workload}: best {state.best * 1e6:.0f} us"
    return Progress("tune", state.trials, state.total, detail + failed)


def _time_left(state: TuneProgress, budget: Budget) -> str:
    """Return what the measurements to come will take, at the speed of those so far."""
    seconds = state.seconds / state.trials * (state.total - state.trials)
    if budget.seconds is not None:
        seconds = max(0.0, min(seconds, budget.seconds - state.seconds))
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
