"""Run all steps of a compilation for each CPU and each shape.

import → simplify → extract → tune → solve → rewrite → lower → build → link → verify
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from neocpu.building.object_cache import open_object_cache
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import DUMP_VARIABLE, Dump, PhaseClock
from neocpu.compilation.accuracy_fallback import finish_as_promised, finish_unchecked, verifier_of
from neocpu.compilation.compile_options import CompileOptions, Member
from neocpu.compilation.compile_sized import compile_sized
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.model_forms import Generating, Simplified
from neocpu.compilation.network_tuning import (
    make_strategy,
    measured_schemes,
    measurer_for,
    open_store,
    tune_networks,
    workloads_of,
)
from neocpu.compilation.read_model import ModelLike, load_for_import, read_network
from neocpu.compilation.shape_sets import check_set, join_set
from neocpu.foundation.errors import UsageError
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.progress import ProgressCallback, of_part, silent
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.quantised.quantised_operators import is_quantised
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.size_ranges import SizeRanges
from neocpu.pipeline import Pipeline
from neocpu.plan.reports.decisions import CalibrationReport, Decisions
from neocpu.planning.network import Network
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import Accuracy
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.tuner import TuneReport
from neocpu.tuning_db.store import Store

if TYPE_CHECKING:
    from neocpu.verification.reference.verification import Verifier


def compile_each(
    model: ModelLike,
    members: Sequence[Member],
    options: CompileOptions,
    progress_of: Callable[[int], ProgressCallback],
    calibration: CalibrationReport | None = None,
) -> Generator[CompiledModule]:
    """Compile a model for several CPUs, each with its own precision.

    The model is imported once, and the reference runs once for each promised accuracy. While the
    code for one CPU is generated, the next plan is made. `progress_of` takes a member's number.
    """
    # Code from the cache has no intermediate forms, so that nothing could be dumped.
    cache = None if os.environ.get(DUMP_VARIABLE) else open_object_cache()
    store = open_store(
        options.databases, only=options.only_databases, writing=options.budget.seconds != 0
    )
    with OneAtATime(cache) as generations:
        if options.ranges is not None:
            for number, member in enumerate(members):
                report = progress_of(number)
                yield _compile_ranges(
                    model, member, options, options.ranges, store, report, generations
                )
            return
        begun = _begin_each(model, members, options, store, progress_of, generations, calibration)
        # With a tuning budget, no code is generated while kernels are measured.
        finished = _finish_each(begun if options.budget.seconds else _one_ahead(begun))
        for number, member in enumerate(members):
            with ExitStack() as on_failure:
                parts = [on_failure.enter_context(next(finished)) for _ in options.signatures]
                joined = join_set(
                    parts, member.target, generations, options.plan.max_weights, progress_of(number)
                )
                on_failure.pop_all()
            yield joined


def _compile_ranges(
    model: ModelLike,
    member: Member,
    options: CompileOptions,
    ranges: SizeRanges,
    store: Store,
    report: ProgressCallback,
    generations: OneAtATime,
) -> CompiledModule:
    """Compile a model for one CPU and all sizes of the ranges."""
    own, cpu = options.computing(member.precision), member.target
    pipeline = _pipeline(cpu, own, store, PhaseClock(report), generations)

    def load(sizes: tuple[int, ...]) -> LoadedModel:
        loaded = _load(model, ranges.at(sizes), own.processing, [member.precision])
        shapes = [each.shape for each in loaded.inputs]
        ranges.refuse_unplaced(
            {n for n, extent in enumerate(sizes) if any(extent in each for each in shapes)}
        )
        return loaded

    unchecked = _unchecked(cpu) if options.verify else "--no-verify"
    tuned = None
    if options.budget.seconds:
        typical = tuple(size.typical for size in ranges.sizes)
        network = pipeline.read(partial(load, typical), keep=False).source.network
        tuned = _tune_networks([network], cpu, store, own, pipeline.clock)
    compiled = compile_sized(pipeline, load, ranges.sizes, unchecked)
    compiled.tuned = tuned
    return compiled


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A compilation for one CPU and signature whose code is being generated."""

    signature: int
    pipeline: Pipeline
    generating: Generating
    tuned: TuneReport | None
    unchecked: str | None  # the reason why the artifact is not verified; None if it is


def _one_ahead(begun: Iterable[_Begun]) -> Iterator[_Begun]:
    """Yield each item only after the next one has begun."""
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
            compiled = finish_unchecked(one.pipeline, one.generating, one.unchecked)
        else:
            promised = one.pipeline.accuracy
            key = one.signature, promised
            if key not in verifiers:
                verifiers[key] = verifier_of(one.generating.planned.loaded, promised)
            compiled = finish_as_promised(one.pipeline, one.generating, verifiers[key])
        compiled.tuned = one.tuned
        yield compiled


def _begin_each(
    model: ModelLike,
    members: Sequence[Member],
    options: CompileOptions,
    store: Store,
    progress_of: Callable[[int], ProgressCallback],
    generations: OneAtATime,
    calibration: CalibrationReport | None,
) -> Iterator[_Begun]:
    unchecked = [_unchecked(each.target) if options.verify else "--no-verify" for each in members]
    models: list[Simplified] = []
    for number, member in enumerate(members):
        cpu, own = member.target, options.computing(member.precision)
        # Each signature has its own clock, because its report has its own seconds.
        count = len(options.signatures)
        clocks = [
            PhaseClock(of_part(progress_of(number), "shape", signature, count))
            for signature in range(count)
        ]
        common = replace(
            _pipeline(cpu, own, store, clocks[0], generations),
            calibration=calibration,
            in_set=count > 1,
        )
        folder = _numbered("cpu", number, len(members))
        pipelines = [
            replace(common, clock=clock, dump=Dump(*folder, *_numbered("shape", signature, count)))
            for signature, clock in enumerate(clocks)
        ]
        if not models:
            for pipeline, shapes in zip(pipelines, options.signatures, strict=True):
                precisions = [each.precision for each in members]
                load = partial(_load, model, shapes, options.processing, precisions)
                models.append(pipeline.read(load, keep=None in unchecked, uses=len(members)))
            check_set([each.loaded for each in models])
        tuned = _tune_networks([each.source.network for each in models], cpu, store, own, clocks[0])
        admissions = own.accuracy.admissions[:1]
        agreed = pipelines[0].plan_jointly(models, *admissions)
        for signature, (pipeline, each) in enumerate(zip(pipelines, models, strict=True)):
            planned = pipeline.plan(each, admissions, agreed=agreed[signature])
            assert planned is not None  # no plan was tried before
            yield _Begun(signature, pipeline, pipeline.generate(planned), tuned, unchecked[number])


def _load(
    model: ModelLike, shapes: InputShapes, processing: Processing, precisions: Sequence[Precision]
) -> LoadedModel:
    """Load a model; refuse ``int8`` if it is not quantised, or the caller would get float32."""
    loaded = load_for_import(model, shapes, processing, WeightStore())
    if Precision.INT8 in precisions and not is_quantised(loaded.reference):
        raise UsageError(
            f"--precision int8 is for quantised models, and '{loaded.name}' is none: give data to "
            "quantise it by (--calibrate)"
        )
    return loaded


def _numbered(what: str, number: int, count: int) -> tuple[str, ...]:
    return (f"{what}-{number + 1}",) if count > 1 else ()


def _pipeline(
    cpu: CpuTarget,
    options: CompileOptions,
    store: Store,
    clock: PhaseClock,
    generations: OneAtATime,
) -> Pipeline:
    cpu = replace(cpu, streams=options.streams or 1)
    return Pipeline(
        target=cpu,
        threads=options.threads,
        options=options.plan,
        templates=options.templates,
        # Every plan asks for the records; the cache avoids reading them again.
        records=functools.cache(
            partial(measured_schemes, store, cpu, options.threads, keep=generations.kept)
        ),
        accuracy=options.accuracy,
        clock=clock,
        dump=Dump(),
        generations=generations,
        disabled_rules=options.disabled_rules,
        streams=options.streams,
    )


def _unchecked(cpu: CpuTarget) -> str | None:
    """Return why this host cannot run and check code for a CPU; None if it can."""
    return code_obstacle(cpu.machine, cpu.demands, host_features())


def plan_only(model: ModelLike, cpu: CpuTarget, options: CompileOptions) -> Decisions:
    """Return the decisions about a model, without generating code."""
    store = open_store(options.databases, only=options.only_databases)
    with OneAtATime() as generations:
        pipeline = _pipeline(cpu, options, store, PhaseClock(silent), generations)
        simplified = pipeline.read(
            partial(_load, model, options.shapes, options.processing, [options.plan.precision]),
            keep=False,
        )
        planned = pipeline.plan(simplified, options.accuracy.admissions[:1], compares=False)
    assert planned is not None  # no plan was tried before
    return planned.decided


def tune_jointly(
    models: Sequence[ModelLike],
    cpu: CpuTarget,
    options: CompileOptions,
    on_progress: ProgressCallback,
) -> TuneReport | None:
    """Measure the workloads of several forms of one model; None if there is no budget."""
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
    if options.budget.seconds == 0:
        return None
    strategy = make_strategy("xgb", cpu, options.threads, store)
    # Records for `auto` are useful to all other precisions, but `auto` never chooses bfloat16.
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
