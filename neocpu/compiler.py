"""The way through the house: the one module that sees everything.

import → simplify → extract → tune → solve → rewrite → lower → build → link → verify
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import onnx

from neocpu import models
from neocpu.attempt import Builder
from neocpu.compiled_module import CompiledModule
from neocpu.descent import compile_as_promised, compile_unchecked
from neocpu.fleet import parse_fleet
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.passes.simplify import simplify
from neocpu.phases import BUILDING, PhaseClock
from neocpu.pipeline import Dump
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.options import PlanOptions
from neocpu.progress import Progress, ProgressCallback, silent
from neocpu.runtime.header import MAX_THREADS
from neocpu.schedules import registry
from neocpu.schedules.accuracy import Accuracy, parse_accuracy
from neocpu.schedules.errors import UsageError
from neocpu.schedules.host import usable_cpus
from neocpu.schedules.instruction_sets import code_obstacle, host_features
from neocpu.schedules.linker import find_linker
from neocpu.schedules.target import CpuTarget, parse_target
from neocpu.schedules.workload import Conv2dWorkload, Workload
from neocpu.search.budget import Budget
from neocpu.search.tuner import TuneReport
from neocpu.tuning import (
    make_strategy,
    measured_schemes,
    measurer_for,
    open_store,
    tune_networks,
    workloads_of,
)
from neocpu.tuning_db.store import Store

ModelLike: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto


def compile(
    model: ModelLike,
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    databases: Sequence[str | os.PathLike[str]] = (),
    only_databases: bool = False,
    tune_budget: float = 0.0,
    opt: str = "global",
    algorithms: Sequence[str] | None = None,
    accuracy: str = "default",
    max_weights: int | None = None,
    solver: str = "auto",
    search_seconds: float | None = None,
    verify: bool = True,
    on_progress: ProgressCallback | None = None,
) -> CompiledModule:
    """Compile an ONNX model for one CPU.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or str
        The model, or the name of a built-in one such as ``resnet50``.
    target : str, dict or CpuTarget
        Any spelling `parse_target` knows.
    threads : int, optional
        Threads the plan is made for; by default the CPUs this process may use.
    shapes : mapping, optional
        Complete shapes of inputs with dynamic dimensions.
    databases : sequence of path
        Tuning databases besides the shipped and the user's own; the last one is written to.
    only_databases : bool
        Use the records of ``databases`` alone; without any, the plan is made of estimates.
    tune_budget : float
        Seconds to spend on measuring what no database knows.
    opt : str
        ``nchw``, ``conv-layout``, ``uniform`` or ``global`` (paper Table 3).
    algorithms : sequence of str, optional
        Restrict the convolution templates, as in ``("direct", "depthwise")``.
    accuracy : str
        ``default``: outputs err at most 1e-4, norm-wise; ``strict``: at most 5e-6, and convolutions
        that err more than direct float32 summation, Winograd's, are excluded. See
        `neocpu.schedules.accuracy`.
    max_weights : int, optional
        Bytes that the packed weights may take: the plan is the fastest one found within them, and
        its gap says how far it may be from the best one. Winograd's transformed weights are up to
        nine times as many as the model's.
    solver : str
        Of the layout search: ``auto`` (exact within ``search_seconds``, else the best plan found,
        and how far that may be from the best one), ``exact`` (however long it takes), or the
        paper's ``dp`` or ``pbqp``.
    search_seconds : float, optional
        Time limit of ``auto`` and ``dp``; 10 by default.
    verify : bool
        Run the result against the reference, if this host can run it, and hold it to ``accuracy``.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    cpu = _linkable(target)
    how = PlanOptions.parse(opt, solver, search_seconds, max_weights)
    threads = _threads(threads)
    budget = _budget(tune_budget)
    templates = registry.resolve_algorithms(algorithms) if algorithms else None
    level = parse_accuracy(accuracy)
    store = open_store(databases, only=only_databases, writing=tune_budget > 0)
    clock = PhaseClock(on_progress or silent)
    records = partial(measured_schemes, store, cpu, threads)
    builder = Builder(cpu, threads, how, templates, records, level, clock, Dump())
    unchecked = _unchecked(cpu) if verify else "--no-verify"
    loaded, source = builder.read(partial(_load, model, shapes), keep=unchecked is None)
    if tune_budget:
        with clock.phase("tune", alone=False):
            _tune_one(source.network, cpu, threads, store, budget, level, clock.report)
    if unchecked is not None:
        return compile_unchecked(builder, loaded, source, unchecked)
    return compile_as_promised(builder, loaded, source)


def _tune_one(
    network: Network,
    cpu: CpuTarget,
    threads: int,
    store: Store,
    budget: Budget,
    level: Accuracy,
    report: ProgressCallback,
) -> None:
    """Measure what one network needs, here, within ``budget``."""
    strategy = make_strategy("xgb", cpu, threads, store)
    measuring = measurer_for(strategy, cpu, threads)
    found = [workloads_of(network, cpu)]
    admission = level.admission
    tune_networks(found, cpu, threads, store, strategy, budget, report, measuring, admission)


def tune(
    models: Sequence[ModelLike],
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    accuracy: str = "default",
    database: str | os.PathLike[str] | None = None,
    only_database: bool = False,
    strategy: str = "xgb",
    seed: int = 0,
    budget: float | None = None,
    trials: int | None = None,
    tracker: str | None = None,
    key: str | None = None,
    parallel: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> TuneReport:
    """Measure the schemes of all convolutions of ``models`` that no database knows.

    And how fast feature maps are transformed and joined, one workload for each class and size. All
    models are tuned together, each to near its own optimum.

    Parameters
    ----------
    models : sequence
        As `compile` takes them.
    target, threads, shapes
        As in `compile`.
    accuracy : str
        ``strict``: measure only what `compile` may choose with that.
    database : path, optional
        Where the measurements go; by default the user's own database.
    only_database : bool
        Know nothing but what ``database`` holds.
    strategy : str
        ``xgb`` (a learned cost model ranks, the best few are measured, it learns; ends when little
        is left to gain), ``grid`` (the paper's exhaustive search, best estimates first), ``random``
        or ``analytic`` (measures nothing, so ``target`` may be any CPU).
    seed : int
        Equal seeds and measurements give equal searches.
    budget : float, optional
        Seconds; no limit by default.
    trials : int, optional
        Measurements; no limit by default.
    tracker : str, optional
        ``HOST:PORT`` of a TVM RPC tracker: measure on its servers instead of on this machine, for
        their ``target`` and with ``threads`` threads there.
    key : str, optional
        What those servers are registered under.
    parallel : int, optional
        Servers to use at once; by default all.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError
    """
    report = on_progress or silent
    cpu = parse_target(target)
    threads = _threads(threads)
    level = parse_accuracy(accuracy)
    named = [] if database is None else [database]
    store = open_store(named, only=only_database, writing=True)
    chosen = make_strategy(strategy, cpu, threads, store, seed)
    measuring = measurer_for(chosen, cpu, threads, parse_fleet(tracker, key, parallel))
    limit = _budget(budget, trials)
    networks = []
    for number, model in enumerate(models):
        report(Progress("import", number, len(models), str(model) if _is_path(model) else ""))
        networks.append(workloads_of(read_network(model, shapes), cpu))
    admission = level.admission
    return tune_networks(networks, cpu, threads, store, chosen, limit, report, measuring, admission)


def workloads(
    model: ModelLike,
    targets: Iterable[CpuTarget],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> set[Workload]:
    """Return the workloads that `tune` measures of a model, for any of ``targets``."""
    network = read_network(model, shapes)
    return {workload for target in targets for workload in workloads_of(network, target)}


def convolutions(
    model: ModelLike, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Conv2dWorkload]:
    """Return a model's convolutions, in program order."""
    return [conv.workload for conv in read_network(model, shapes).convs]


def read_network(model: ModelLike, shapes: Mapping[str, Sequence[int]] | None = None) -> Network:
    """Return a model's operators as the layout search sees them."""
    with BUILDING:
        return extract(simplify(import_relax(_load(model, shapes))))


def _is_path(model: ModelLike) -> bool:
    return isinstance(model, str | os.PathLike)


def _load(model: ModelLike, shapes: Mapping[str, Sequence[int]] | None) -> LoadedModel:
    shapes = {name: _extents(name, shape) for name, shape in (shapes or {}).items()}
    if isinstance(model, str) and models.is_name(model):
        return replace(load_model(models.build_with_shapes(model, shapes)), name=model)
    return load_model(model, shapes)


def _extents(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise UsageError(
            f"the shape of input '{name}' must be a sequence of whole numbers, got {shape!r}"
        ) from None


def _linkable(target: str | dict[str, Any] | CpuTarget) -> CpuTarget:
    """Return the CPU, having found a linker: its absence is not told after minutes of tuning."""
    cpu = parse_target(target)
    find_linker(cpu.machine)
    return cpu


def _unchecked(cpu: CpuTarget) -> str | None:
    """Return why what is compiled cannot be run and checked here; None if it can."""
    return code_obstacle(cpu.machine, cpu.features, host_features())


def _threads(threads: int | None) -> int:
    if threads is None:
        return usable_cpus()
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads must be a whole number from 1 to {MAX_THREADS}, got {threads!r}")
    return threads


def _budget(seconds: float | None, trials: int | None = None) -> Budget:
    if seconds is not None and not 0 <= seconds < math.inf:
        raise UsageError(f"a tuning budget must be seconds, 0 or more, got {seconds}")
    if trials is not None and trials < 0:
        raise UsageError(f"trials must be 0 or more, got {trials}")
    return Budget(seconds, trials)
