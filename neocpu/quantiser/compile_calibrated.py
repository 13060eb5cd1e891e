"""Compiling a float32 model in mixed precision: quantised where it pays, within a budget."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

import onnx

from neocpu.compilation.compile_each import compile_each, tune_jointly
from neocpu.compilation.compile_options import CompileOptions, CompileSettings, Member
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.read_model import ModelLike, load_for_import
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.option_words import PrecisionName
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.plan.outcome import CalibratedLayer, Calibration
from neocpu.plan.reports.decisions import CalibrationReport, IntegerLayer
from neocpu.planning.precision import Precision
from neocpu.quantiser.calibrated import Calibrated, calibrate
from neocpu.quantiser.calibration import Source, read_samples
from neocpu.quantiser.equalisation import equalise
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.mixed_precision import (
    all_in_integers,
    faster_in_integers,
    measure_noise,
    within,
)
from neocpu.quantiser.observation import Comparison, Samples, VisibleModel, compare_models, visible
from neocpu.quantiser.pictures import Preprocessing
from neocpu.quantiser.quantise_options import QuantiseOptions
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target

DEFAULT_MAX_ERROR: Final = 0.1
"""Norm-wise error of outputs: 20 dB. Classifiers then agree with float32 on 98 to 99 of 100
pictures."""

_TIGHTER: Final = 0.5
"""Share of the budget of noise to try next, if layers together add more noise than their sum."""
_ATTEMPTS: Final = 4
_RACE_SECONDS: Final = 1.0
_WORTH: Final = 0.99  # largest time of integers, as a share of float32's, that is worth their noise


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the outputs' difference from float32, on data that gave no ranges."""

    max_error: float | None  # largest norm-wise relative error
    min_agreement: float | None  # least share of rows whose largest score stays the same

    @classmethod
    def parse(cls, max_error: float | None, min_agreement: float | None) -> Budget:
        if max_error is not None and not 0 < max_error < math.inf:
            raise UsageError(f"max_error must be above 0, got {max_error!r}")
        if min_agreement is not None and not 0 <= min_agreement <= 1:
            raise UsageError(f"min_agreement must be from 0 to 1, got {min_agreement!r}")
        if max_error is None and min_agreement is None:
            max_error = DEFAULT_MAX_ERROR
        return cls(max_error, min_agreement)

    @property
    def power(self) -> float:
        """The noise that layers may add to the outputs, as a share of their power."""
        return math.inf if self.max_error is None else self.max_error**2

    def excess(self, found: Comparison) -> str:
        if self.max_error is not None and not found.error <= self.max_error:
            return f"outputs err by {found.error:.2g} of their norm, more than {self.max_error:g}"
        if self.min_agreement is not None:
            if found.agreement is None:
                raise UsageError("min_agreement is for models that return rows of scores")
            if found.agreement < self.min_agreement:
                share = f"{found.agreement:.1%} of rows"
                return f"{share} have the same largest score, not {self.min_agreement:.1%}"
        return ""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """Calibration data, the way to use them, and the limits on the outputs' errors."""

    source: Source
    how: QuantiseOptions
    budget: Budget

    @classmethod
    def parse(
        cls,
        calibration: Source,
        how: QuantiseOptions | None = None,
        max_error: float | None = None,
        min_agreement: float | None = None,
    ) -> CalibrationRequest:
        return cls(calibration, how or QuantiseOptions(), Budget.parse(max_error, min_agreement))


def compile_calibrated(
    model: ModelLike,
    calibration: Source,
    how: QuantiseOptions | None = None,
    *,
    precision: PrecisionName = "auto",
    max_error: float | None = None,
    min_agreement: float | None = None,
    target: str | dict[str, Any] | CpuTarget = "host",
    on_progress: ProgressCallback | None = None,
    **settings: Unpack[CompileSettings],
) -> CompiledModule:
    """Compile a float32 model with those layers in integers that are faster in integers.

    Ranges are taken from half of the calibration data, and limits are checked on the other half. If
    this host can run the compiled model, it is timed against the float32 model, and the faster one
    is returned. A tuning budget is spent once, before layers are chosen.

    Parameters
    ----------
    model, target, settings
        Arguments of `neocpu.compile`.
    calibration, how
        Arguments of `neocpu.quantize`.
    precision : str
        ``auto``; or ``int8``: all layers are quantised, and compute in integers if that is faster.
    max_error : float, optional
        The largest norm-wise error of outputs against float32; 0.1 if no limit is given.
    min_agreement : float, optional
        The least share of rows whose largest score stays the same.

    Raises
    ------
    AccuracyError
        ``int8`` misses the limits; ``auto`` leaves layers in float32 until it keeps them.
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError
    """
    options = CompileOptions.parse(precision=precision, **settings)
    member = Member(parse_target(target), options.plan.precision)
    request = CalibrationRequest.parse(calibration, how, max_error, min_agreement)
    tell = on_progress or silent
    (compiled,) = compile_each_calibrated(model, request, [member], options, lambda _: tell)
    return compiled


def compile_each_calibrated(
    model: ModelLike,
    request: CalibrationRequest,
    members: Sequence[Member],
    options: CompileOptions,
    progress_of: Callable[[int], ProgressCallback],
) -> Generator[CompiledModule]:
    """Compile a float32 model for several CPUs, each with its own choice of layers in integers.

    The model is calibrated once for all CPUs. A member whose precision is neither ``int8`` nor
    ``auto`` is compiled without integers. `progress_of` returns the progress callback of a member.
    """
    if options.ranges is not None:
        raise UsageError(
            "calibration data (--calibrate) are for one size, and the shapes have ranges: leave "
            "them out, or give one size"
        )
    how, budget = _with_artifact_pictures(request.how, options.processing), request.budget
    if not any(_takes_integers(member) for member in members):
        precision = members[0].precision
        raise UsageError(f"calibration data are for --precision int8 or auto, not {precision}")
    if how.correction == "activations":
        raise UsageError("correction by activations is for quantize: it takes all layers")
    graph = float_graph(load_for_import(model, options.shapes), how.exclude)
    graph = equalise(graph) if how.equalise else graph
    samples = read_samples(request.source, graph.inputs, how.samples, how.pictures)
    choosing, checking = samples[::2], samples[1::2] or samples
    threads, tell = options.cpus, progress_of(0)
    with visible(graph.proto, graph.compared, graph.tensors, threads) as original:
        calibrated = calibrate(graph, original, choosing, how, threads, tell)
        for number, member in enumerate(members):
            compiling = _Compiling(
                model=model,
                options=options,
                budget=budget,
                calibrated=calibrated,
                original=original,
                choosing=choosing,
                checking=checking,
                member=member,
                tell=progress_of(number),
            )
            yield compiling.compile()


def _with_artifact_pictures(how: QuantiseOptions, processing: Processing) -> QuantiseOptions:
    """Return options that prepare pictures for calibration as the artifact will prepare them."""
    if processing.picture is None:
        return how
    fit = how.pictures.fit if processing.resize is None else processing.resize.fit
    pictures = Preprocessing(fit, processing.mean, processing.std, processing.bgr)  # type: ignore[arg-type]
    return replace(how, pictures=pictures)


def _takes_integers(member: Member) -> bool:
    return member.precision in (Precision.INT8, Precision.AUTO)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiling:
    """A calibrated model on its way to one CPU."""

    model: ModelLike
    options: CompileOptions
    budget: Budget
    calibrated: Calibrated
    original: VisibleModel
    choosing: Samples  # for ranges and noise
    checking: Samples  # for limits
    member: Member
    tell: ProgressCallback

    def compile(self) -> CompiledModule:
        if not _takes_integers(self.member):
            return self._build(self.model, self.options, self.member.precision)
        # Tuning once is enough: all later compilations find its records.
        graph, cpu = self.calibrated.graph, self.member.target
        forms = [graph.proto, self.calibrated.written()]
        tuned = tune_jointly(forms, cpu, self.options, self.tell)
        after_tuning = self if tuned is None else replace(self, options=self.options.after_tuning())
        whole = self.member.precision is Precision.INT8
        compiled = after_tuning._whole() if whole else after_tuning._mixed()
        compiled.tuned = tuned
        return compiled

    def _whole(self) -> CompiledModule:
        proto = self.calibrated.written()
        found = self._compared(proto)
        if reason := self.budget.excess(found):
            raise AccuracyError(f"in 8 bits {reason}; pass --precision auto, or raise the limit")
        layers = self._with_noise(
            all_in_integers(self.calibrated, self.member.target, self.options)
        )
        report = self._report(layers, found)
        return self._build(proto, self._of_fixed_shapes, Precision.INT8, report)

    def _mixed(self) -> CompiledModule:
        cpu = self.member.target
        layers, found = self._kept(
            faster_in_integers(self.calibrated, cpu, self.options, self.tell)
        )
        nothing = self._report((), None)
        if not layers:
            excess = None if found is None else self.budget.excess(found)
            nothing = self._report((), None, excess)
            return self._build(self.model, self.options, Precision.FP32, nothing)
        report = self._report(layers, found)
        proto = self.calibrated.written_with([one.result for one in layers])
        mixed = self._build(proto, self._of_fixed_shapes, Precision.AUTO, report)
        if code_obstacle(cpu.machine, cpu.demands, host_features()):
            return mixed
        plain = self._build(self.model, self.options, Precision.FP32, nothing)
        seconds = _race(mixed, plain, self.options.threads, self.tell)
        is_worth_it = seconds[0] <= _WORTH * seconds[1]
        winner, loser = (mixed, plain) if is_worth_it else (plain, mixed)
        loser.close()
        raced = replace(
            (report if is_worth_it else nothing).stored,
            integers_us=seconds[0] * 1e6,
            float32_us=seconds[1] * 1e6,
        )
        plan = replace(winner.plan, calibration=raced)
        winner.add_outcome(winner.header.with_plan(plan))
        return winner

    def _kept(
        self, layers: tuple[IntegerLayer, ...]
    ) -> tuple[tuple[IntegerLayer, ...], Comparison | None]:
        """Leave layers out until the rest keeps the budget; return the rest and its comparison.

        If no layer is left, the comparison is that of the smallest choice that was tried.
        """
        if not layers:
            return (), None
        found = self._with_integers(layers)
        if not self.budget.excess(found):
            return self._with_noise(layers), found
        measured = measure_noise(
            self.calibrated, layers, self.choosing, self.options.cpus, self.tell
        )
        # All layers together exceed the budget.
        allowed = min(self.budget.power, _TIGHTER * sum(one.noise for one in measured))
        for _ in range(_ATTEMPTS):
            kept = within(measured, allowed)
            if not kept:
                break
            found = self._with_integers(kept)
            if not self.budget.excess(found):
                return kept, found
            allowed *= _TIGHTER
        return (), found

    def _with_integers(self, layers: Sequence[IntegerLayer]) -> Comparison:
        return self._compared(self.calibrated.written_with([one.result for one in layers]))

    def _compared(self, proto: onnx.ModelProto) -> Comparison:
        outputs = self.calibrated.graph.compared
        with visible(proto, outputs, (), self.options.cpus) as rounded:
            return compare_models((self.original, rounded), outputs, (), self.checking, self.tell)

    def _with_noise(self, layers: tuple[IntegerLayer, ...]) -> tuple[IntegerLayer, ...]:
        """Return the layers with their noise on one sample, which is only for the report."""
        return layers and measure_noise(
            self.calibrated, layers, self.choosing[:1], self.options.cpus, self.tell
        )

    def _report(
        self, layers: tuple[IntegerLayer, ...], found: Comparison | None, excess: str | None = None
    ) -> CalibrationReport:
        stored = Calibration(
            layers=tuple(
                CalibratedLayer(name=one.name, saved_us=one.saved_seconds * 1e6, noise=one.noise)
                for one in layers
            ),
            max_error=self.budget.max_error,
            min_agreement=self.budget.min_agreement,
            error=0.0 if found is None else found.error,
            agreement=None if found is None else found.agreement,
            samples=len(self.checking),
            integers_us=None,
            float32_us=None,
            excess=excess,
        )
        return CalibrationReport(stored=stored, names={one.result: one.name for one in layers})

    @property
    def _of_fixed_shapes(self) -> CompileOptions:
        return replace(self.options, signatures=(NO_SHAPES,))

    def _build(
        self,
        model: ModelLike,
        options: CompileOptions,
        precision: Precision,
        report: CalibrationReport | None = None,
    ) -> CompiledModule:
        member = replace(self.member, precision=precision)
        (compiled,) = compile_each(model, [member], options, lambda _: self.tell, report)
        return compiled


def _race(
    first: CompiledModule, second: CompiledModule, threads: int, tell: ProgressCallback
) -> tuple[float, float]:
    tell(Progress("race"))
    seconds: tuple[list[float], list[float]] = ([], [])
    with first.module(threads) as a, second.module(threads) as b:
        inputs = random_inputs(a.inputs, 0)
        end = time.perf_counter() + 2 * _RACE_SECONDS
        while len(seconds[0]) < 4 or time.perf_counter() < end:
            for module, times in zip((a, b), seconds, strict=True):
                start = time.perf_counter()
                module.run(inputs)
                times.append(time.perf_counter() - start)
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])
