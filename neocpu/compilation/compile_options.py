"""The options of a compilation, checked in one place for the command line, Python and fat files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TypedDict

from neocpu.foundation.errors import ArgumentTypeError, UsageError, did_you_mean
from neocpu.foundation.host import MAX_THREADS, usable_cpus
from neocpu.foundation.option_words import GOALS, AccuracyName, Goal, Opt, Solver
from neocpu.foundation.units import parse_duration
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.requested_shapes import Shapes, parse_signatures
from neocpu.frontend.shapes.size_ranges import SizeRanges, Typical, fix_single
from neocpu.graph.table import parse_disabled
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.precision import Precision, parse_precision
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import BFLOAT16, DEFAULT, Accuracy, parse_accuracy
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.search.budget import Budget


class CompileSettings(TypedDict, total=False):
    """The settings that all compiling functions share: see `neocpu.compile`."""

    goal: Goal
    threads: int | None
    shapes: Shapes | None
    typical: Typical | None
    batch: int | None
    databases: Sequence[str | os.PathLike[str]]
    only_databases: bool
    tune_budget: float | str
    opt: Opt
    algorithms: Sequence[str] | None
    accuracy: AccuracyName
    small: bool
    max_weights: int | None
    pack_at_load: bool
    solver: Solver
    search_seconds: float | None
    verify: bool
    processing: Processing
    disable_rules: Sequence[str]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The arguments of `neocpu.compile` except the model and the target, parsed.

    `signatures`: several for a set of shapes. `ranges`: the sizes that one plan takes; it is made
    for the only signature, that at the typical sizes. `streams`: number of concurrent calls that
    the plan is made for; None to minimise the time of one call. `max_error`: the largest norm-wise
    error of the outputs of a network in bfloat16.
    """

    threads: int
    signatures: tuple[InputShapes, ...]
    databases: tuple[str | os.PathLike[str], ...]
    only_databases: bool
    budget: Budget
    plan: PlanOptions
    templates: frozenset[str] | None
    accuracy: Accuracy
    verify: bool
    processing: Processing = NO_PROCESSING
    disabled_rules: frozenset[str] = frozenset()
    streams: int | None = None
    max_error: float = math.inf
    ranges: SizeRanges | None = None

    @classmethod
    def parse(
        cls,
        *,
        goal: str = "latency",
        threads: int | None = None,
        shapes: Shapes | None = None,
        typical: Typical | None = None,
        batch: int | None = None,
        databases: Sequence[str | os.PathLike[str]] = (),
        only_databases: bool = False,
        tune_budget: float | str = 0.0,
        opt: str = "global",
        algorithms: Sequence[str] | None = None,
        accuracy: str = "default",
        precision: str = "auto",
        small: bool = False,
        max_weights: int | None = None,
        pack_at_load: bool = True,
        solver: str = "auto",
        search_seconds: float | None = None,
        verify: bool = True,
        processing: Processing = NO_PROCESSING,
        disable_rules: Sequence[str] = (),
    ) -> CompileOptions:
        """Parse the arguments of `neocpu.compile`, which describes them."""
        shapes = fix_single(shapes)
        ranges = SizeRanges.parse(shapes, typical, batch)
        given = [] if ranges is not None else parse_signatures(shapes)
        signatures = tuple(InputShapes.parse(each, batch) for each in given)
        if ranges is not None:
            signatures = (ranges.typical,)
        packs = pack_at_load and len(signatures) > 1
        plan = PlanOptions.parse(opt, solver, search_seconds, max_weights, precision, packs, small)
        cpus = parse_threads(threads)
        streams = cpus if parse_goal(goal) == "throughput" else None
        parsed = cls(
            threads=cpus if streams is None else 1,
            signatures=signatures,
            databases=tuple(databases),
            only_databases=only_databases,
            budget=parse_budget(tune_budget),
            plan=plan,
            templates=registry.resolve_algorithms(algorithms) if algorithms else None,
            accuracy=parse_accuracy(accuracy),
            verify=verify,
            processing=processing,
            disabled_rules=parse_disabled(disable_rules),
            streams=streams,
            ranges=ranges,
        )
        return parsed.computing(plan.precision)

    @property
    def cpus(self) -> int:
        """The number of CPUs that the plan is made for."""
        return self.threads * (self.streams or 1)

    @property
    def shapes(self) -> InputShapes:
        """The shapes of the inputs, if the options have a single signature."""
        if len(self.signatures) > 1:
            raise UsageError(
                f"a set of {len(self.signatures)} shapes, but only one is allowed: give one shape"
            )
        return self.signatures[0]

    def computing(self, precision: Precision) -> CompileOptions:
        """Return options for another precision, with an accuracy that it can keep."""
        level = DEFAULT if self.accuracy.name == BFLOAT16.name else self.accuracy
        if precision is Precision.BF16:
            if level is not DEFAULT:
                raise UsageError(f"--accuracy {level} is of float32: drop it, or --precision bf16")
            level = replace(BFLOAT16, limit=self.max_error)
        return replace(self, plan=replace(self.plan, precision=precision), accuracy=level)

    def after_tuning(self) -> CompileOptions:
        """Return options without a tuning budget and without databases that do not exist."""
        written = tuple(path for path in self.databases if os.path.exists(path))
        return replace(self, budget=Budget(0.0, None), databases=written)


@dataclass(frozen=True, slots=True)
class Member:
    """A CPU to compile for, with its precision, and its name in messages and fat files."""

    target: CpuTarget
    precision: Precision = Precision.AUTO
    name: str = ""

    @classmethod
    def parse(cls, text: str, default: Precision) -> Member:
        """Parse ``CPU`` or ``CPU:PRECISION``."""
        name, colon, precision = text.rpartition(":")
        if not colon or text.lstrip().startswith("{"):  # a target in JSON has colons too
            return cls(parse_target(text), default, text)
        return cls(parse_target(name), parse_precision(precision), name)


def parse_goal(goal: str) -> str:
    if goal not in GOALS:
        hint = did_you_mean(str(goal), GOALS)
        raise UsageError(f"goal must be 'latency' or 'throughput', got {goal!r}{hint}")
    return goal


def parse_threads(threads: int | None) -> int:
    """Check a number of threads; by default it is the number of CPUs that this process may use."""
    if threads is None:
        return usable_cpus()
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        kind = UsageError if isinstance(threads, int) else ArgumentTypeError
        raise kind(f"threads must be a whole number from 1 to {MAX_THREADS}, got {threads!r}")
    return threads


def parse_budget(time: float | str | None, trials: int | None = None) -> Budget:
    """Return a tuning budget from a time (seconds, or text such as ``"10m"``) and a trial limit."""
    seconds = None if time is None else _seconds(time)
    if trials is not None and trials < 0:
        raise UsageError(f"trials must be 0 or more, got {trials}")
    return Budget(seconds, trials)


def _seconds(time: float | str) -> float:
    if isinstance(time, str):
        try:
            return parse_duration(time)
        except ValueError as error:
            raise UsageError(f"the tuning budget {error}") from None
    if isinstance(time, bool) or not isinstance(time, Real) or not 0 <= time < math.inf:
        kind = UsageError if isinstance(time, Real) else ArgumentTypeError
        raise kind(
            "a tuning budget must be seconds, 0 or more, or text such as '60s', '10m' or '1h', "
            f"got {time!r}"
        )
    return float(time)
