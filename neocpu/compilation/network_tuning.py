"""Tune a network: choose the databases, the search space and the machine that measures."""

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
from neocpu.planning.choice import BORROWED, Measured
from neocpu.planning.costs import Keep, make_anew
from neocpu.planning.network import Network, memory_workloads
from neocpu.planning.precision import Precision
from neocpu.schedules import registry
from neocpu.schedules.estimates.loop_threads import MANY_THREADS
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, Admission
from neocpu.schedules.vocabulary.scheme import Scheme, scheme_from_json
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.budget import Budget
from neocpu.search.cost_model import LearnedCostModel
from neocpu.search.measuring.local_measurer import LocalMeasurer
from neocpu.search.measuring.measure import Measurer, ReplayMeasurer
from neocpu.search.measuring.rpc_measurer import RpcMeasurer
from neocpu.search.measuring.rpc_tracker import Fleet
from neocpu.search.strategies import Strategy
from neocpu.search.strategies.simple import AnalyticStrategy, GridStrategy, RandomStrategy
from neocpu.search.strategies.xgb import XgbStrategy
from neocpu.search.tuner import TuneReport, tune
from neocpu.search.tuning_progress import stage_progress, tuning_progress
from neocpu.search.tuning_state import SearchSpace, TuningTask
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import Record, TargetKey, Workload, newest_day
from neocpu.tuning_db.store import Borrowed, Store, default_database, shipped_databases

_log = logging.getLogger("neocpu")
# Without a limit, a file of another kind would cause one warning a line.
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
    """Open the shipped records, the user's own and ``databases`` as layers of one store.

    `only`: whether to leave out the first two. `writing`: whether measurements will be written: to
    the last of ``databases``, which need not exist then, or without any to the user's own. Raises
    UsageError: there is no database to write to; DatabaseError: a file cannot be read.
    """
    if writing and only and not databases:
        raise UsageError("--only-db leaves no database to write to: name one with --db")
    user, named = default_database(), [Path(path) for path in databases]
    last = (named.pop() if named else user) if writing else None
    # `os.path.exists` is false in a folder that may not be read, such as root's.
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
    """Return the best seconds of each recorded scheme; None for a scheme that failed.

    A workload without a successful record also gets those of the most similar workload or of the
    closest relative of the CPU (`Store.lenders`), multiplied by the median ratio of the estimates
    here to those there, which keeps their order and makes them comparable with estimates. With many
    threads, they are also multiplied by the ratio of each scheme's own estimates with many and with
    few: the best scheme with two threads may have only two tasks. Of several streams, each is
    multiplied by its estimated slowdown from sharing the memory.
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
    """Return the records of a lender, scaled to this CPU and workload; None if none can be used."""
    key, other = lender.target, lender.workload
    is_similar, is_elsewhere = other != workload, key != TargetKey.of(target, threads)
    there = target if key.mcpu == target.mcpu else cpu_target(key)
    records = _usable(lender.records, workload, target, there, own=not is_similar)
    if is_similar:  # its failures may be due to its own steps
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
    """Return records of schemes that all targets can run; warn of others that are the ``own``."""
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
    """Return the estimated seconds with many threads, as a multiple of those with few."""
    many = registry.estimate(workload, scheme, with_cores(target, threads), threads)
    return many / registry.estimate(workload, scheme, target, few)


def _beside_others(
    found: Measured, target: CpuTarget, threads: int, workload: Workload
) -> Measured:
    """Scale seconds that were measured alone to ``target.streams`` calls that share the memory."""
    alone = replace(target, streams=1)

    def shared(scheme: Scheme, seconds: float) -> float:
        sharing = registry.estimate(workload, scheme, target, threads)
        return seconds * sharing / registry.estimate(workload, scheme, alone, threads)

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
    """Return the named search strategy; one that learns begins with the records of ``store``."""
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise UsageError(f"unknown --strategy {name!r}; known: {', '.join(STRATEGIES)}{hint}")
    return STRATEGIES[name](target, threads, store, seed)


def workloads_of(
    network: Network, target: CpuTarget, precision: Precision = Precision.AUTO
) -> list[Workload]:
    """Return the workloads that a plan needs: convolutions, and those that measure memory."""
    convs = network.computing(precision, target).convs
    ways = (workload for conv in convs for workload, _ in conv.ways)
    return [*ways, *memory_workloads(network, target)]


def search_space(target: CpuTarget, threads: int, admission: Admission = EVERY_TILE) -> SearchSpace:
    """Return all legal schemes that are exact enough, with estimates for ``threads`` threads."""
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
    """Measure the workloads of networks that ``store`` has no records of.

    Each network has its workloads as often as it runs them. Only schemes that are exact enough for
    ``admission`` are measured. Ctrl-C ends the search and calls ``on_interrupt``. Raises
    NeoCPUError: nothing can be measured any more; DatabaseError: ``store`` cannot be written.
    """
    store.read()  # now, so that reading costs none of the budget

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
    """Return the distinct workloads of networks, with the number of runs in each network."""
    counts = [Counter(workloads) for workloads in networks]
    distinct = dict.fromkeys(workload for workloads in networks for workload in workloads)
    return [TuningTask(w, tuple(count[w] for count in counts)) for w in distinct]


def measurer_for(
    strategy: Strategy, target: CpuTarget, threads: int, fleet: Fleet | None = None
) -> AbstractContextManager[Measurer]:
    """Return a context manager that measures on this machine or on ``fleet``.

    Raises TargetError: this machine cannot run code for ``target``; UsageError: ``fleet`` cannot be
    reached.
    """
    if isinstance(strategy, AnalyticStrategy):  # it measures nothing, so any CPU will do
        return nullcontext(ReplayMeasurer({}))
    if fleet is None:
        return LocalMeasurer(target, threads)
    return RpcMeasurer(target, threads, fleet.tracker, fleet.key, fleet.parallel)


def _warn_if_too_small(budget: Budget, report: TuneReport) -> None:
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
