"""The way through the house: the one module that sees everything.

import → simplify → extract → tune → solve → rewrite → lower → build → link → verify
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

import onnx

from neocpu import models
from neocpu.attempt import Builder
from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.pipeline import Dump
from neocpu.compiled_module import CompiledModule
from neocpu.descent import compile_as_promised, compile_unchecked
from neocpu.fleet import parse_fleet
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.linker import find_linker
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import parse_duration
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.input_shapes import NO_SHAPES, InputShapes
from neocpu.passes.simplify import simplify
from neocpu.phases import BUILDING, PhaseClock
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.options import PlanOptions
from neocpu.runtime.header import MAX_THREADS
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import Accuracy, parse_accuracy
from neocpu.schedules.vocabulary.target import CpuTarget, parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload
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
    batch: int | None = None,
    databases: Sequence[str | os.PathLike[str]] = (),
    only_databases: bool = False,
    tune_budget: float | str = 0.0,
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
    batch : int, optional
        Images of each call: the first extent of every input that ``shapes`` does not name and
        whose first dimension is dynamic or, if none is, 1. A model of one image is changed to take
        several: what it computes of each stays the same, and is checked against the model as given.
    databases : sequence of path
        Tuning databases besides the shipped and the user's own; the last one is written to.
    only_databases : bool
        Use the records of ``databases`` alone; without any, the plan is made of estimates.
    tune_budget : float or str
        Time to spend on measuring what no database knows: seconds, or text such as ``"60s"``,
        ``"10m"`` or ``"1h"``.
    opt : str
        ``nchw``, ``conv-layout``, ``uniform`` or ``global`` (paper Table 3).
    algorithms : sequence of str, optional
        Restrict the convolution templates, as in ``("direct", "depthwise")``.
    accuracy : str
        ``default``: outputs err at most 1e-4, norm-wise; ``strict``: at most 5e-6, and convolutions
        that err more than direct float32 summation, Winograd's, are excluded. See
        `neocpu.schedules.vocabulary.accuracy`.
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
    store = open_store(databases, only=only_databases, writing=budget.seconds != 0)
    clock = PhaseClock(on_progress or silent)
    records = partial(measured_schemes, store, cpu, threads)
    builder = Builder(cpu, threads, how, templates, records, level, clock, Dump())
    unchecked = _unchecked(cpu) if verify else "--no-verify"
    load = partial(_load, model, InputShapes.parse(shapes, batch))
    loaded, source = builder.read(load, keep=unchecked is None)
    tuned = _tune_one(source.network, cpu, threads, store, budget, level, clock)
    if unchecked is not None:
        compiled = compile_unchecked(builder, loaded, source, unchecked)
    else:
        compiled = compile_as_promised(builder, loaded, source)
    compiled.tuned = tuned
    return compiled


def _tune_one(
    network: Network,
    cpu: CpuTarget,
    threads: int,
    store: Store,
    budget: Budget,
    level: Accuracy,
    clock: PhaseClock,
) -> TuneReport | None:
    """Measure what one network needs, here, within ``budget``; None if there is none."""
    if budget.seconds == 0:
        return None
    strategy = make_strategy("xgb", cpu, threads, store)
    measuring = measurer_for(strategy, cpu, threads)
    found = [workloads_of(network, cpu)]
    with clock.phase("tune", alone=False):
        return tune_networks(
            found, cpu, threads, store, strategy, budget, clock.report, measuring, level.admission
        )


def tune(
    models: Sequence[ModelLike],
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    accuracy: str = "default",
    database: str | os.PathLike[str] | None = None,
    only_database: bool = False,
    strategy: str = "xgb",
    seed: int = 0,
    budget: float | str | None = None,
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
    target, threads, shapes, batch
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
    budget : float or str, optional
        Seconds, or text such as ``"10m"``; no limit by default.
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
    given = InputShapes.parse(shapes, batch)
    networks = []
    for number, model in enumerate(models):
        report(Progress("import", number, len(models), str(model) if _is_path(model) else ""))
        networks.append(workloads_of(read_network(model, given), cpu))
    admission = level.admission
    return tune_networks(networks, cpu, threads, store, chosen, limit, report, measuring, admission)


def workloads(
    model: ModelLike,
    targets: Iterable[CpuTarget],
    shapes: InputShapes = NO_SHAPES,
) -> set[Workload]:
    """Return the workloads that `tune` measures of a model, for any of ``targets``."""
    network = read_network(model, shapes)
    return {workload for target in targets for workload in workloads_of(network, target)}


def convolutions(model: ModelLike, shapes: InputShapes = NO_SHAPES) -> list[Conv2dWorkload]:
    """Return a model's convolutions, in program order."""
    return [conv.workload for conv in read_network(model, shapes).convs]


def read_network(model: ModelLike, shapes: InputShapes = NO_SHAPES) -> Network:
    """Return a model's operators as the layout search sees them."""

    def read() -> Network:
        return extract(simplify(import_relax(_load(model, shapes))))

    with BUILDING:
        return on_deep_stack(read)


def _is_path(model: ModelLike) -> bool:
    return isinstance(model, str | os.PathLike)


def _load(model: ModelLike, shapes: InputShapes) -> LoadedModel:
    if isinstance(model, str) and models.is_name(model):
        return replace(load_model(models.build_with_shapes(model, shapes)), name=model)
    return load_model(model, shapes)


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


def _budget(time: float | str | None, trials: int | None = None) -> Budget:
    seconds = None if time is None else _seconds(time)
    if trials is not None and trials < 0:
        raise UsageError(f"trials must be 0 or more, got {trials}")
    return Budget(seconds, trials)


def _seconds(time: float | str) -> float:
    """Return the seconds of a tuning budget, in any of its forms."""
    if isinstance(time, str):
        try:
            return parse_duration(time)
        except ValueError as error:
            raise UsageError(f"a tuning budget: {error}") from None
    if isinstance(time, bool) or not isinstance(time, Real) or not 0 <= time < math.inf:
        raise UsageError(
            "a tuning budget must be seconds, 0 or more, or text such as '60s', '10m' or '1h', "
            f"got {time!r}"
        )
    return float(time)
