"""Benchmark models one after another. A failure of one does not affect the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from neocpu.bench.engines.agreement import BFLOAT16_ERROR, MAX_RELATIVE_ERROR, QUANTISED_ERROR
from neocpu.bench.engines.contenders import OWN, OWN_FLOAT, Contender
from neocpu.bench.engines.engine_session import Inputs
from neocpu.bench.engines.measured_model import MeasuredModel, compile_in_child, find_model
from neocpu.bench.limits.roofline import Limits, Roofline, measure_limits, work_of
from neocpu.bench.race.coldstart import measure_cold_start
from neocpu.bench.race.convolution_kernels import KernelReport, best_cases, measure_kernels
from neocpu.bench.race.latency import LatencyOptions, measure_scaling
from neocpu.bench.race.report import ModelReport, Planned
from neocpu.bench.results.failure import ModelFailure
from neocpu.compilation.network_tuning import open_store
from neocpu.compilation.read_model import convolutions
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.schedules.vocabulary.target_parsing import host_target

_log = logging.getLogger("neocpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    peers: tuple[str, ...]  # engines to compare with
    threads: tuple[int, ...]  # ascending; all but the scaling is measured at the last one
    rounds: int  # the rounds of each latency measurement
    databases: tuple[Path, ...] = ()  # tuning databases, as `neocpu.compile` takes them
    shapes: InputShapes = NO_SHAPES
    source: str | None = None  # the model an artifact was compiled from
    kernels: bool = False  # whether these are measured besides the latency
    cold_start: bool = False
    roofline: bool = False
    precision: str | None = None  # ``int8`` or ``auto`` quantise models first; or ``bf16``
    defaults: bool = False  # whether every engine has its own defaults
    max_error: float | None = None  # the largest accepted error of an engine, relative to float32

    @property
    def most_threads(self) -> int:
        return self.threads[-1]


def measure_models(
    models: Sequence[str], request: Request, on_progress: ProgressCallback = silent
) -> Iterator[ModelReport | ModelFailure]:
    """Measure each model, and yield what came out before the next one is begun.

    A failure, or an interruption, follows a report of what was measured before it.
    Raises TargetError: the machine's limits are wanted and cannot be measured.
    """
    limits = None
    if request.roofline:
        limits = measure_limits(request.most_threads, on_progress)
    for number, model in enumerate(models):
        with TemporaryFolder("bench") as folder:
            report = on_progress
            if len(models) > 1:
                report = _named(on_progress, f"{model} ({number + 1}/{len(models)})")
            measurement = _Measurement(request, limits, Path(folder), report)
            yield from _kept(model, measurement.stages(model))


def _kept(model: str, stages: Iterable[ModelReport]) -> Iterator[ModelReport | ModelFailure]:
    """Yield the last report of ``stages``, and then the failure if a stage raises an exception."""
    report: ModelReport | None = None
    try:
        for stage in stages:
            report = stage
    except KeyboardInterrupt:
        if report is not None:
            yield report
        raise
    except Exception as error:  # a bug in one model must not cost the others' results either
        _log.debug("%s failed", model, exc_info=True)
        if report is not None:
            yield report
        yield ModelFailure(model if report is None else report.name, error)
    else:
        assert report is not None
        yield report


@dataclass(frozen=True, slots=True)
class _Measurement:
    request: Request
    limits: Limits | None
    folder: Path
    on_progress: ProgressCallback

    def stages(self, model: str) -> Iterator[ModelReport]:
        request = self.request
        tested = self._find_model(model)
        inputs = random_inputs(tested.header.inputs, seed=0)
        report = self._latency(tested, inputs)
        yield report
        for failure in report.latency.failures:
            if failure.label == OWN:
                raise ArtifactError(f"{tested.artifact.name} does not run: {failure.reason}")
        if self.limits is not None:
            report = replace(report, roofline=self._roofline(tested, report, self.limits))
            yield report
        if request.kernels:
            report = replace(report, kernels=self._kernels(tested))
            yield report
        if request.cold_start:
            contenders = tested.contenders(request.peers)
            threads = request.most_threads
            cold = measure_cold_start(
                contenders, inputs, threads, on_progress=self.on_progress, workspace=self.folder
            )
            yield replace(report, cold_start=cold)

    def _find_model(self, model: str) -> MeasuredModel:
        request = self.request
        return find_model(
            model,
            self.folder,
            threads=request.most_threads,
            shapes=request.shapes,
            databases=request.databases,
            source=request.source,
            verify=not request.peers,  # else outputs are compared with a peer's
            precision=request.precision,
            max_error=request.max_error,
            peers=request.peers,
            on_progress=self.on_progress,
        )

    def _latency(self, tested: MeasuredModel, inputs: Inputs) -> ModelReport:
        request = self.request
        scaling = measure_scaling(
            partial(self._contenders, tested),
            inputs,
            request.threads,
            self._options(tested),
            self.on_progress,
            reference=OWN_FLOAT if tested.in_float else next(iter(request.peers), None),
            workspace=self.folder,
        )
        plan = tested.header.known_plan
        return ModelReport(
            name=tested.name,
            target=tested.header.target,
            latency=scaling.reports[request.most_threads],
            planned=None if plan is None else Planned.of(plan),
            compilation=tested.compilation,
            scaling=scaling if len(request.threads) > 1 else None,
        )

    def _contenders(self, tested: MeasuredModel, threads: int) -> Sequence[Contender]:
        request = self.request
        own, *others = tested.contenders(request.peers)
        if threads == request.most_threads or tested.compilation is None:
            return (own, *others)
        path = self.folder / f"{threads}-threads.so"
        compile_in_child(
            tested.require_model(),
            path,
            threads=threads,
            databases=request.databases,
            on_progress=self.on_progress,
        )
        return (replace(own, path=path), *others)

    def _roofline(self, tested: MeasuredModel, report: ModelReport, limits: Limits) -> Roofline:
        assert report.own is not None
        work = work_of(load_model(tested.require_model()))
        return Roofline(tested.name, report.own.median, work.flops, work.bytes, limits)

    def _kernels(self, tested: MeasuredModel) -> KernelReport:
        target, threads = host_target(), self.request.most_threads
        workloads = convolutions(tested.require_model())
        if not workloads:
            raise UsageError(f"{tested.name} has no convolutions for --kernels to measure")
        cases = best_cases(workloads, open_store(self.request.databases), target, threads)
        return measure_kernels(cases, target, threads, on_progress=self.on_progress)

    def _options(self, tested: MeasuredModel) -> LatencyOptions:
        coarse = self.request.defaults or tested.in_bfloat16
        plain = BFLOAT16_ERROR if coarse else MAX_RELATIVE_ERROR
        usual = QUANTISED_ERROR if tested.is_quantised else plain
        return LatencyOptions(
            rounds=self.request.rounds,
            row_groups=tested.header.row_groups,
            tolerance=usual if self.request.max_error is None else self.request.max_error,
            defaults=self.request.defaults,
        )


def _named(on_progress: ProgressCallback, name: str) -> ProgressCallback:
    def report(progress: Progress) -> None:
        on_progress(replace(progress, phase=f"{name}: {progress.phase}"))

    return report
