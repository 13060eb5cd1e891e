"""The way through the house: the one module that sees everything.

import → simplify → extract → tune → solve → rewrite → lower → build → link → verify
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx

from neocpu import models
from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.object_cache import open_object_cache
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.phases import BUILDING, PhaseClock
from neocpu.building.pipeline import DUMP_VARIABLE, Dump
from neocpu.compile_options import CompileOptions, Member, parse_budget, parse_threads
from neocpu.compiled_module import CompiledModule
from neocpu.descent import finish_as_promised, finish_unchecked, verifier_of
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.linker import find_linker
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.frontend.importer import import_relax
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.processing.load_processed import load_processed
from neocpu.input_shapes import NO_SHAPES, Given, InputShapes
from neocpu.network_tuning import (
    make_strategy,
    measured_schemes,
    measurer_for,
    open_store,
    tune_networks,
    workloads_of,
)
from neocpu.passes.simplify_relax import simplify
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.precision import Precision
from neocpu.processing import NO_PROCESSING, Processing
from neocpu.reports.calibration_report import CalibrationReport
from neocpu.reports.plan_report import PlanReport
from neocpu.schedules.vocabulary.accuracy import Accuracy, parse_accuracy
from neocpu.schedules.vocabulary.target import CpuTarget, parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload
from neocpu.search.measuring.fleet import parse_fleet
from neocpu.search.tuner import TuneReport
from neocpu.shape_sets.given import Shapes
from neocpu.shape_sets.joining import check_set, join_set
from neocpu.stages import Builder, Generating, Simplified
from neocpu.tuning_db.store import Store

if TYPE_CHECKING:
    from neocpu.verification import Verifier

ModelLike: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto


def compile(
    model: ModelLike,
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    goal: str = "latency",
    threads: int | None = None,
    shapes: Shapes | None = None,
    batch: int | None = None,
    databases: Sequence[str | os.PathLike[str]] = (),
    only_databases: bool = False,
    tune_budget: float | str = 0.0,
    opt: str = "global",
    algorithms: Sequence[str] | None = None,
    accuracy: str = "default",
    precision: str = "auto",
    max_weights: int | None = None,
    solver: str = "auto",
    search_seconds: float | None = None,
    verify: bool = True,
    processing: Processing = NO_PROCESSING,
    disable_rules: Sequence[str] = (),
    on_progress: ProgressCallback | None = None,
) -> CompiledModule:
    """Compile an ONNX model for one CPU.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or str
        The model, or the name of a built-in one such as ``resnet50``.
    target : str, dict or CpuTarget
        Any spelling `parse_target` knows.
    goal : str
        ``latency``: one call takes the least time on all threads. ``throughput``: calls of one
        thread each, made at once on all of them, which `neocpu.load` does with ``streams="auto"``.
    threads : int, optional
        Threads the plan is made for; by default the CPUs this process may use.
    shapes : mapping, or sequence of mappings, optional
        Complete shapes of inputs with dynamic dimensions; or a number: the extent of a named
        dimension, or the value of an input that is constant from then on, as in ``{"sr": 16000}``.
        Several such mappings are a set of shapes: the artifact has a plan for each of them, and
        weights that they share once.
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
    precision : str
        Of a quantised model: ``auto`` computes each operator in integers where that is faster in
        the network, ``int8`` wherever the CPU has instructions for it, ``fp32`` nowhere. What it
        computes is the same; float32 models are computed in float32. ``bf16`` has convolutions
        and dense layers read bfloat16 and add up in float32: outputs err by that, and are held to
        `neocpu.schedules.vocabulary.accuracy.BFLOAT16`.
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
    processing : Processing
        What the artifact does before and after the model: `Processing.parse`.
    disable_rules : sequence of str
        Names of rules that are not applied to the graph, such as ``("fold-scale",)``: to see what
        they bring, or to go on where one is wrong. docs/passes.md lists them.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    cpu = _linkable(target)
    options = CompileOptions.parse(
        goal=goal,
        threads=threads,
        shapes=shapes,
        batch=batch,
        databases=databases,
        only_databases=only_databases,
        tune_budget=tune_budget,
        opt=opt,
        algorithms=algorithms,
        accuracy=accuracy,
        precision=precision,
        max_weights=max_weights,
        solver=solver,
        search_seconds=search_seconds,
        verify=verify,
        processing=processing,
        disable_rules=disable_rules,
    )
    member = Member(cpu, options.plan.precision)
    (compiled,) = compile_each(model, [member], options, lambda _: on_progress or silent)
    return compiled


def compile_each(
    model: ModelLike,
    members: Sequence[Member],
    options: CompileOptions,
    progress_of: Callable[[int], ProgressCallback],
    calibration: CalibrationReport | None = None,
) -> Generator[CompiledModule]:
    """Compile a model for several CPUs, each in numbers of its own.

    The model is imported once, and what outputs are compared with is computed once for each
    promise. While the code for one CPU is generated, the plan for the next is made.

    Parameters
    ----------
    progress_of : callable
        Return where the progress of a member goes, by its number.
    calibration : CalibrationReport, optional
        What calibration data decided before, for the plans to tell.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    # Who looks at a kernel's intermediate forms wants it to have them.
    cache = None if os.environ.get(DUMP_VARIABLE) else open_object_cache()
    with OneAtATime(cache) as generations:
        begun = _begin_each(model, members, options, progress_of, generations, calibration)
        # Nothing else runs while kernels are measured.
        finished = _finish_each(begun if options.budget.seconds else _one_ahead(begun))
        for _ in members:
            with ExitStack() as on_failure:
                parts = [on_failure.enter_context(next(finished)) for _ in options.signatures]
                joined = join_set(parts, options.plan.max_weights)
                on_failure.pop_all()
            yield joined


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A compilation for one CPU and signature whose code is being generated.

    Attributes
    ----------
    signature : int
        Its number.
    unchecked : str or None
        Why what comes of it is not to be verified.
    """

    signature: int
    builder: Builder
    generating: Generating
    tuned: TuneReport | None
    unchecked: str | None


def _one_ahead(begun: Iterable[_Begun]) -> Iterator[_Begun]:
    """Yield each once the next has begun too."""
    waiting: list[_Begun] = []
    for one in begun:
        if waiting:
            yield waiting.pop()
        waiting.append(one)
    yield from waiting


def _finish_each(begun: Iterable[_Begun]) -> Iterator[CompiledModule]:
    verifiers: dict[tuple[int, Accuracy], Verifier] = {}
    for one in begun:
        if one.unchecked is not None:
            compiled = finish_unchecked(one.builder, one.generating, one.unchecked)
        else:
            promised = one.builder.accuracy
            key = one.signature, promised
            if key not in verifiers:
                verifiers[key] = verifier_of(one.generating.planned.loaded, promised)
            compiled = finish_as_promised(one.builder, one.generating, verifiers[key])
        compiled.tuned = one.tuned
        yield compiled


def _begin_each(
    model: ModelLike,
    members: Sequence[Member],
    options: CompileOptions,
    progress_of: Callable[[int], ProgressCallback],
    generations: OneAtATime,
    calibration: CalibrationReport | None,
) -> Iterator[_Begun]:
    store = open_store(
        options.databases, only=options.only_databases, writing=options.budget.seconds != 0
    )
    unchecked = [_unchecked(m.target) if options.verify else "--no-verify" for m in members]
    models: list[Simplified] = []
    for number, member in enumerate(members):
        cpu, own = member.target, options.computing(member.precision)
        # One for each signature, whose seconds it counts.
        count = len(options.signatures)
        clocks = [
            PhaseClock(_of_signature(progress_of(number), signature, count))
            for signature in range(count)
        ]
        builders = [
            replace(_builder(cpu, own, store, clock, generations), calibration=calibration)
            for clock in clocks
        ]
        if not models:
            for builder, shapes in zip(builders, options.signatures, strict=True):
                load = partial(load_for_import, model, shapes, options.processing)
                models.append(builder.read(load, keep=None in unchecked, uses=len(members)))
            check_set([each.loaded for each in models])
        tuned = _tune_networks([each.source.network for each in models], cpu, store, own, clocks[0])
        admissions = own.accuracy.admissions[:1]
        agreed = builders[0].plan_together(models, *admissions)
        for signature, (builder, each) in enumerate(zip(builders, models, strict=True)):
            planned = builder.plan(each, admissions, agreed=agreed[signature])
            assert planned is not None  # no plan was tried before
            yield _Begun(signature, builder, builder.generate(planned), tuned, unchecked[number])


def _of_signature(report: ProgressCallback, number: int, count: int) -> ProgressCallback:
    """Return where the progress of one of ``count`` signatures goes."""
    if count == 1:
        return report

    def tell(step: Progress) -> None:
        report(replace(step, phase=f"shape {number + 1} of {count}: {step.phase}"))

    return tell


def _builder(
    cpu: CpuTarget,
    options: CompileOptions,
    store: Store,
    clock: PhaseClock,
    generations: OneAtATime,
) -> Builder:
    cpu = replace(cpu, streams=options.streams or 1)
    return Builder(
        cpu,
        options.threads,
        options.plan,
        options.templates,
        partial(measured_schemes, store, cpu, options.threads, keep=generations.kept),
        options.accuracy,
        clock,
        Dump(),
        generations,
        disabled_rules=options.disabled_rules,
        streams=options.streams,
    )


def plan_only(model: ModelLike, cpu: CpuTarget, options: CompileOptions) -> PlanReport:
    """Return what would be decided of a model, without generating code.

    Raises
    ------
    ModelError, UnsupportedError, UsageError, DatabaseError
    """
    store = open_store(options.databases, only=options.only_databases)
    with OneAtATime() as generations:
        builder = _builder(cpu, options, store, PhaseClock(silent), generations)
        simplified = builder.read(
            partial(load_for_import, model, options.shapes, options.processing), keep=False
        )
        planned = builder.plan(simplified, options.accuracy.admissions[:1])
    assert planned is not None  # no plan was tried before
    return planned.report


def tune_together(
    models: Sequence[ModelLike],
    cpu: CpuTarget,
    options: CompileOptions,
    on_progress: ProgressCallback,
) -> TuneReport | None:
    """Measure what several forms of one model need within its budget; None if there is none.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, DatabaseError
    """
    if options.budget.seconds == 0:
        return None
    store = open_store(options.databases, only=options.only_databases, writing=True)
    networks = [read_network(model) for model in models]
    return _tune_networks(networks, cpu, store, options, PhaseClock(on_progress))


def _tune_networks(
    networks: Sequence[Network],
    cpu: CpuTarget,
    store: Store,
    options: CompileOptions,
    clock: PhaseClock,
) -> TuneReport | None:
    """Measure what networks need, here, within the budget; None if there is none."""
    if options.budget.seconds == 0:
        return None
    strategy = make_strategy("xgb", cpu, options.threads, store)
    # Records of what `auto` may choose from are worth having; it never chooses bfloat16.
    halves = options.plan.precision is Precision.BF16
    precision = Precision.BF16 if halves else Precision.AUTO
    with clock.phase("tune", alone=False):
        return tune_networks(
            [workloads_of(network, cpu, precision) for network in networks],
            cpu,
            options.threads,
            store,
            strategy,
            options.budget,
            clock.report,
            measurer_for(strategy, cpu, options.threads),
            options.accuracy.admission,
        )


def tune(
    models: Sequence[ModelLike],
    *,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Given] | None = None,
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
    threads = parse_threads(threads)
    level = parse_accuracy(accuracy)
    named = [] if database is None else [database]
    store = open_store(named, only=only_database, writing=True)
    chosen = make_strategy(strategy, cpu, threads, store, seed)
    measuring = measurer_for(chosen, cpu, threads, parse_fleet(tracker, key, parallel))
    limit = parse_budget(budget, trials)
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
        return extract(simplify(import_relax(load_for_import(model, shapes))))

    with BUILDING:
        return on_deep_stack(read)


def _is_path(model: ModelLike) -> bool:
    return isinstance(model, str | os.PathLike)


def load_for_import(
    model: ModelLike, shapes: InputShapes, processing: Processing = NO_PROCESSING
) -> LoadedModel:
    """Read, check and simplify a model, or build one by its name."""
    if isinstance(model, str) and models.is_name(model):
        built = models.build_with_shapes(model, shapes)
        return replace(load_processed(built, NO_SHAPES, processing), name=model)
    return load_processed(model, shapes, processing)


def _linkable(target: str | dict[str, Any] | CpuTarget) -> CpuTarget:
    """Return the CPU, having found a linker: its absence is not told after minutes of tuning."""
    cpu = parse_target(target)
    find_linker(cpu.machine)
    return cpu


def _unchecked(cpu: CpuTarget) -> str | None:
    """Return why what is compiled cannot be run and checked here; None if it can."""
    return code_obstacle(cpu.machine, cpu.features, host_features())
