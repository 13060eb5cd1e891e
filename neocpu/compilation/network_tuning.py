"""Tuning a network: which databases, which space, which machine."""

from __future__ import annotations

import logging
import os
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.progress import ProgressCallback
from neocpu.foundation.units import duration, plural
from neocpu.planning.costs import Keep, make_anew
from neocpu.planning.measured_costs import BORROWED, Measured
from neocpu.planning.memory_workloads import memory_workloads
from neocpu.planning.network import Network
from neocpu.planning.precision import Precision
from neocpu.schedules import registry
from neocpu.schedules.estimates.loop_threads import MANY_THREADS
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, Admission
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.scheme_table import scheme_from_json
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.budget import Budget
from neocpu.search.cost_model import LearnedCostModel
from neocpu.search.measuring.fleet import Fleet
from neocpu.search.measuring.local_measurer import LocalMeasurer
from neocpu.search.measuring.measure import Measurer, ReplayMeasurer
from neocpu.search.measuring.rpc_measurer import RpcMeasurer
from neocpu.search.strategies import Strategy
from neocpu.search.strategies.analytic import AnalyticStrategy
from neocpu.search.strategies.grid import GridStrategy
from neocpu.search.strategies.random import RandomStrategy
from neocpu.search.strategies.xgb import XgbStrategy
from neocpu.search.tuner import TuneReport, tune
from neocpu.search.tuning_progress import stage_progress, tuning_progress
from neocpu.search.tuning_state import SearchSpace, TuningTask
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import Record, TargetKey, Workload, newest_day
from neocpu.tuning_db.store import Borrowed, Store, default_database, shipped_databases

_log = logging.getLogger("neocpu")
# A foreign file would otherwise print all of itself.
MAX_WARNINGS = 3

StrategyMaker: TypeAlias = Callable[[CpuTarget, int, Store, int], Strategy]
STRATEGIES: dict[str, StrategyMaker] = {
    "xgb": lambda target, threads, store, seed: XgbStrategy(
        LearnedCostModel(target, threads, registry.estimate, store, seed)
    ),
    "grid": lambda target, threads, store, seed: GridStrategy(),
    "random": lambda target, threads, store, seed: RandomStrategy(seed),
    "analytic": lambda target, threads, store, seed: AnalyticStrategy(),
}


def open_store(
    databases: Sequence[str | os.PathLike[str]], *, only: bool = False, writing: bool = False
) -> Store:
    """Layer the shipped records, the user's own, and ``databases``, which must exist.

    Parameters
    ----------
    only : bool
        Leave out the shipped records and the user's own.
    writing : bool
        Whether measurements are to be written: to the last one, which need not exist then.

    Raises
    ------
    UsageError
        If measurements are to be written and there is no database to write to.
    DatabaseError
        If a file cannot be read.
    """
    if writing and only and not databases:
        raise UsageError("--only-db leaves no database to write to: name one with --db")
    user, named = default_database(), [Path(path) for path in databases]
    last = (named.pop() if named else user) if writing else None
    # A folder that may not be looked into, as root's is to others, holds no database of one's own.
    own = [user] if user != last and os.path.exists(user) else []
    layers = named if only else [*own, *named]
    shipped = () if only else shipped_databases()
    store = Store.open(layers, last, registry.template_version, shipped=shipped)
    for skipped in store.skipped[:MAX_WARNINGS]:
        _log.warning("%s", skipped)
    if len(store.skipped) > MAX_WARNINGS:
        _log.warning("%d more lines skipped", len(store.skipped) - MAX_WARNINGS)
    return store


def measured_schemes(
    store: Store, target: CpuTarget, threads: int, workload: Workload, keep: Keep = make_anew
) -> Measured:
    """Return the best seconds of each scheme on record; None for one that failed.

    A workload that has only failures on record for ``target`` and ``threads``, or nothing, gets the
    records of the most similar workload or of the closest relative besides (`Store.lenders`), each
    multiplied by the median ratio of the estimates here to those there. That keeps their order and
    makes them compare with estimates. For many threads, each is also multiplied by what its own
    estimates say of them: a scheme that was the best with two may have no more tasks than that.

    They were measured with nothing beside them. Of one of several streams each takes as many times
    as long as its estimate says that sharing the memory makes it.

    Parameters
    ----------
    keep : callable
        Where an earlier compilation may have left the answer.
    """

    def find() -> tuple[str, str, list[tuple[Any, float | None]]]:
        found = _measured_schemes(store, replace(target, streams=1), threads, workload)
        if target.streams > 1:
            found = _beside_others(found, target, threads, workload)
        rows = [(scheme.to_json(), best) for scheme, best in found.seconds.items()]
        return found.source, found.day, rows

    source, day, rows = keep(f"records {workload!r} {target!r} {threads} {store.state}", find)
    return Measured({scheme_from_json(scheme): best for scheme, best in rows}, source, day)


def _measured_schemes(
    store: Store, target: CpuTarget, threads: int, workload: Workload
) -> Measured:
    own = _usable(store.results(workload, target, threads), workload, target)
    if any(record.result.error is None for record in own.values()):
        return Measured(_best_seconds(own), day=newest_day(own.values()))
    lent = (
        _borrowed(each, target, threads, workload)
        for each in store.lenders(workload, target, threads)
    )
    found = next((each for each in lent if each is not None), Measured())
    return replace(found, seconds={**found.seconds, **_best_seconds(own)})


def _borrowed(
    lender: Borrowed, target: CpuTarget, threads: int, workload: Workload
) -> Measured | None:
    """Return another's records as they would have been measured here; None if none of them fits."""
    key, other = lender.target, lender.workload
    is_similar, is_elsewhere = other != workload, key != TargetKey.of(target, threads)
    there = target if key.mcpu == target.mcpu else cpu_target(key)
    records = _usable(lender.records, workload, target, there, own=not is_similar)
    if is_similar:  # its failures may be those of its steps
        usable = _usable(records, other, there, own=False)
        records = {scheme: each for scheme, each in usable.items() if each.result.error is None}
    if not any(record.result.error is None for record in records.values()):
        return None
    many = threads >= MANY_THREADS and is_elsewhere
    ratio = statistics.median(
        registry.estimate(workload, scheme, target, key.threads if many else threads)
        / registry.estimate(other, scheme, there, key.threads)
        for scheme, record in records.items()
        if record.result.error is None
    )
    known = _best_seconds(records, ratio)
    if many:
        known = {
            scheme: best and best * _on_many(workload, scheme, target, threads, key.threads)
            for scheme, best in known.items()
        }
    where = f"measured on {key.mcpu} with {plural(key.threads, 'thread')}"
    source = ", ".join([BORROWED] * is_similar + [where] * is_elsewhere)
    return Measured(known, source, newest_day(records.values()))


def _usable(
    records: Mapping[Scheme, Record], workload: Workload, *targets: CpuTarget, own: bool = True
) -> Mapping[Scheme, Record]:
    """Return the records of schemes that can be estimated and run on all of these targets.

    Of a workload's own records all should be.
    """
    usable = {
        scheme: record
        for scheme, record in records.items()
        if all(registry.can_compute(workload, scheme, target) for target in targets)
    }
    if own and (left := len(records) - len(usable)):
        _log.warning(
            "%s skipped: the schemes cannot compute %s; 'neocpu db check' names the lines",
            plural(left, "record"),
            workload,
        )
    return usable


def _on_many(
    workload: Workload, scheme: Scheme, target: CpuTarget, threads: int, few: int
) -> float:
    """Return how many times as long a scheme takes with many threads as with few."""
    many = registry.estimate(workload, scheme, with_cores(target, threads), threads)
    return many / registry.estimate(workload, scheme, target, few)


def _beside_others(
    found: Measured, target: CpuTarget, threads: int, workload: Workload
) -> Measured:
    """Return what was measured alone as it is where ``target.streams`` calls share the memory."""
    alone = replace(target, streams=1)

    def shared(scheme: Scheme, seconds: float) -> float:
        together = registry.estimate(workload, scheme, target, threads)
        return seconds * together / registry.estimate(workload, scheme, alone, threads)

    every = found.seconds.items()
    return replace(found, seconds={s: best and shared(s, best) for s, best in every})


def _best_seconds(
    records: Mapping[Scheme, Record], scale: float = 1.0
) -> dict[Scheme, float | None]:
    return {
        scheme: record.result.best * scale if record.result.error is None else None
        for scheme, record in records.items()
    }


def make_strategy(
    name: str, target: CpuTarget, threads: int, store: Store, seed: int = 0
) -> Strategy:
    """Return the named search strategy.

    Parameters
    ----------
    store : Store
        What a learning strategy learns from before anything is measured.
    seed : int
        Equal seeds and measurements give equal searches.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise UsageError(f"unknown --strategy {name!r}; known: {', '.join(STRATEGIES)}{hint}")
    return STRATEGIES[name](target, threads, store, seed)


def workloads_of(
    network: Network, target: CpuTarget, precision: Precision = Precision.AUTO
) -> list[Workload]:
    """Return what a plan of ``network`` needs to know: its convolutions, and what memory costs."""
    convs = network.computing(precision, target).convs
    ways = (workload for conv in convs for workload, _ in conv.ways)
    return [*ways, *memory_workloads(network, target)]


def search_space(target: CpuTarget, threads: int, admission: Admission = EVERY_TILE) -> SearchSpace:
    """Return every template's legal schemes that are exact enough.

    With their estimates for ``threads`` threads.
    """

    return SearchSpace(
        schemes=lambda w: registry.admitted(admission, registry.schemes(w, target, threads), w),
        estimate=lambda workload, scheme: registry.estimate(workload, scheme, target, threads),
        template_version=registry.template_version,
    )


def tune_networks(
    networks: Sequence[Collection[Workload]],
    target: CpuTarget,
    threads: int,
    store: Store,
    strategy: Strategy,
    budget: Budget,
    on_progress: ProgressCallback,
    measuring: AbstractContextManager[Measurer],
    admission: Admission = EVERY_TILE,
    on_interrupt: Callable[[TuneReport], None] = lambda report: None,
) -> TuneReport:
    """Measure what ``store`` does not know of networks.

    Parameters
    ----------
    networks : sequence of collection of Workload
        What each network runs, as many times as it does.
    measuring : context manager of Measurer
        As `measurer_for` makes it.
    admission : Admission
        Only schemes that are exact enough for it are measured.
    on_interrupt : callable
        Called with what was tried until then, if Ctrl-C ends the measuring.

    Raises
    ------
    NeoCPUError
        If nothing can be measured any more.
    DatabaseError
        If ``store`` cannot be written.
    """
    store.read()  # before the budget's clock starts

    def borrowed(workload: Workload) -> Scheme | None:
        known = measured_schemes(store, target, threads, workload).seconds
        usable = {scheme: best for scheme, best in known.items() if best is not None}
        return min(usable, key=usable.__getitem__, default=None)

    with measuring as measurer:
        report = tune(
            tuning_tasks(networks),
            target=target,
            threads=threads,
            store=store,
            measurer=measurer,
            strategy=strategy,
            space=replace(search_space(target, threads, admission), borrowed=borrowed),
            budget=budget,
            on_progress=lambda state: on_progress(tuning_progress(state, budget)),
            on_stage=lambda stage: on_progress(stage_progress(stage)),
            on_interrupt=on_interrupt,
        )
    _warn_if_too_small(budget, report)
    return report


def tuning_tasks(networks: Sequence[Collection[Workload]]) -> list[TuningTask]:
    """Return the distinct workloads of networks, and how many times each of these runs them."""
    counts = [Counter(workloads) for workloads in networks]
    distinct = dict.fromkeys(workload for workloads in networks for workload in workloads)
    return [TuningTask(w, tuple(count[w] for count in counts)) for w in distinct]


def measurer_for(
    strategy: Strategy, target: CpuTarget, threads: int, fleet: Fleet | None = None
) -> AbstractContextManager[Measurer]:
    """Return what measures on this machine or on ``fleet``, once it is entered.

    Raises
    ------
    TargetError
        If this machine cannot run code for ``target``.
    UsageError
        If ``fleet`` cannot be used: nobody should wait for the models to be read to be told.
    """
    if isinstance(strategy, AnalyticStrategy):  # works for any CPU, there or not
        return nullcontext(ReplayMeasurer({}))
    if fleet is None:
        return LocalMeasurer(target, threads)
    return RpcMeasurer(target, threads, fleet.tracker, fleet.key, fleet.parallel)


def _warn_if_too_small(budget: Budget, report: TuneReport) -> None:
    """Say so if the time was not enough for one measurement."""
    if budget.seconds is None or report.measured > 1 or report.seconds < budget.seconds:
        return
    if report.left:
        _log.warning(
            "a tuning budget of %s is not enough for one measurement%s; "
            "%d schemes are left to their estimates",
            duration(budget.seconds),
            f", which took {duration(report.seconds)} here" if report.measured else "",
            report.left,
        )
