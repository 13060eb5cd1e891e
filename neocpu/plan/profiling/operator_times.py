"""The time of every operator of a network within a run, beside the machine's limits.

Times are measured inside the running network (`neocpu.plan.profiling.call_times`): caches are as
the previous operator left them, and weights come from wherever they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from neocpu.bench.limits.dot_peak import DotSequence
from neocpu.bench.limits.instruction_peaks import InstructionSequence
from neocpu.bench.limits.measuring_process import measure_in_process
from neocpu.bench.limits.roofline import Limits
from neocpu.bench.limits.tile_peak import TileSequence
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import plural
from neocpu.plan.kernels import OTHER, RUNTIME, TRANSFORM
from neocpu.plan.members import members
from neocpu.plan.operators import DENSE, PlannedOperator
from neocpu.plan.plan import Plan
from neocpu.runtime.described_calls import operators_in_turn
from neocpu.schedules.tir.tiles import PARTS
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, Numerics
from neocpu.schedules.vocabulary.scheme import MatrixScheme, SplitScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target

ROUNDS: Final = 20
TIMEOUT: Final = 600.0

CONSPICUOUS: Final = 0.03  # share of a run above which other operators than these two are named
# A kernel is marked as wrong if it takes more than `NOTICEABLE` of a run and reaches less than
# `FAR_BELOW` of its nearest limit.
FAR_BELOW: Final = 0.1
NOTICEABLE: Final = 0.02

CONVOLUTION: Final = "convolution, "
POOL: Final = "pool"

Bound = Literal["multiply-adds", "weights", "feature maps", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One call of a kernel, however often a run makes it; or all the time between the calls."""

    # The name of the plan's operator, or of the kernel where the plan has none; ``runtime`` for the
    # time between the calls.
    name: str
    kernel: str  # the function that is called; equal operators share one
    kind: str  # the class it belongs to: ``convolution, winograd``, ``pool``, ``runtime``…
    work: str  # the computation, in words
    seconds: float  # median over the rounds
    fastest: float  # seconds of the fastest round
    flops: int  # the operations of multiply-adds, by the direct algorithm
    weights: int  # bytes of the weights it reads
    others: int  # bytes of all else it reads and writes
    # Instructions of convolutions in 8-bit integers, and of all products in tiles.
    sequence: InstructionSequence | None = None
    times: int = 1  # in loops more; seconds and operations are of all times, bytes of one (caches)
    predicted: float = 0.0  # seconds that the compiler predicted; 0 if the plan has no prediction
    lacks: str = ""  # the shortcomings that the compiler found, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The sum of several operators: those of one kernel, or those of one class."""

    label: str
    kind: str
    work: str
    count: int
    seconds: float
    flops: int
    bytes: int
    bound: Bound  # the limit that is nearest, in time
    least: float  # seconds that they take at least under that limit
    predicted: float  # seconds that the compiler predicted; 0 if the plan has no prediction
    lacks: str = ""  # the shortcomings that the compiler found in the first operator, in words

    @property
    def share_of_bound(self) -> float:
        """The share of the nearest limit that is reached; 0 if no run made the call."""
        return self.least / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class ProfileReport:
    threads: int
    seconds: float  # time of a run without timers
    instrumented: float  # time of one whose operators are timed
    operators: tuple[Operator, ...]  # the operators in the order of their calls
    limits: Limits  # the limits of the machine
    pages: Mapping[str, Any] = field(default_factory=dict)  # see `call_times.resident_pages`

    @property
    def total(self) -> float:
        return sum(operator.seconds for operator in self.operators)

    @cached_property
    def kernels(self) -> tuple[Row, ...]:
        return self._rows("kernel")

    @cached_property
    def classes(self) -> tuple[Row, ...]:
        return self._rows("kind")

    @property
    def conspicuous(self) -> tuple[Row, ...]:
        """Kernels above `CONSPICUOUS` that are no convolutions or dense layers."""
        free = (DENSE, RUNTIME)
        return tuple(
            row
            for row in self.kernels
            if row.seconds > CONSPICUOUS * self.total
            and row.kind not in free
            and not row.kind.startswith(CONVOLUTION)
        )

    @property
    def far_below(self) -> tuple[Row, ...]:
        """Kernels above `NOTICEABLE` that reach less than `FAR_BELOW` of their nearest limit."""
        return tuple(
            row
            for row in self.kernels
            if row.seconds > NOTICEABLE * self.total and 0 < row.share_of_bound < FAR_BELOW
        )

    def share(self, row: Row) -> float:
        return row.seconds / self.total

    def least(self, operator: Operator) -> tuple[Bound, float]:
        """Return the nearest limit of an operator, and the least seconds that it allows.

        Weights are read from memory unless all weights of the network fit into the last-level
        cache. Feature maps are where their producer left them: in that cache if they fit.
        """
        limits = self.limits
        cached = limits.cache_read or limits.dram
        all_weights = sum(one.weights for one in self.operators)
        weights = limits.dram if all_weights > limits.cache else cached
        others = limits.dram if operator.others > limits.cache else cached
        times: dict[Bound, float] = {
            "multiply-adds": operator.flops / limits.flops,
            "weights": operator.weights / weights,
            "feature maps": operator.others / others,
        }
        bound = max(times, key=times.__getitem__)
        return (bound, times[bound]) if times[bound] else ("call", 0.0)

    def _rows(self, attribute: Literal["kernel", "kind"]) -> tuple[Row, ...]:
        groups: dict[str, list[Operator]] = defaultdict(list)
        for operator in self.operators:
            groups[getattr(operator, attribute)].append(operator)
        rows = [self._row(label, operators) for label, operators in groups.items()]
        return tuple(sorted(rows, key=lambda row: row.seconds, reverse=True))

    def _row(self, label: str, operators: Sequence[Operator]) -> Row:
        times: dict[Bound, float] = defaultdict(float)
        for operator in operators:
            bound, seconds = self.least(operator)
            times[bound] += seconds
        return Row(
            label=label,
            kind=operators[0].kind,
            work=operators[0].work,
            count=sum(one.times for one in operators),
            seconds=sum(one.seconds for one in operators),
            flops=sum(one.flops for one in operators),
            bytes=sum(one.weights + one.others for one in operators),
            bound=max(times, key=times.__getitem__),
            least=sum(times.values()),
            predicted=sum(one.predicted for one in operators),
            lacks=operators[0].lacks,
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form; times in seconds, ``share`` of the operators' sum."""

        def row(one: Row) -> JsonObject:
            shares = {"share": self.share(one), "share_of_bound": one.share_of_bound}
            return {**asdict(one), **shares}

        def operator(one: Operator) -> JsonObject:
            bound, least = self.least(one)
            sequence = None if one.sequence is None else one.sequence.to_json()
            return {**asdict(one), "sequence": sequence, "bound": bound, "least": least}

        return {
            **members(self, "threads seconds instrumented limits pages"),
            "classes": [row(one) for one in self.classes],
            "operators": [operator(one) for one in self.operators],
            "conspicuous": [one.label for one in self.conspicuous],
            "far_below": [one.label for one in self.far_below],
        }


def measure_profile(
    artifact: Path,
    plan: Plan,
    limits: Limits,
    rounds: int = ROUNDS,
    on_progress: ProgressCallback = silent,
    number: int = 0,
) -> ProfileReport:
    """Time every operator in a process, on as many threads as ``limits`` of this machine.

    Raises ArtifactError: the artifact does not run.
    """
    on_progress(Progress("profile", detail=plural(limits.threads, "thread")))
    measured = measure_in_process(
        "neocpu.plan.profiling.call_times",
        (artifact, limits.threads, rounds, number),
        ArtifactError,
        f"profile {artifact.name}",
        TIMEOUT,
    )
    operators = operators_of(plan, measured["calls"])
    predicted, lacks = (
        {kernel.name: kernel.cost_us / 1e6 / kernel.calls for kernel in plan.kernels},
        _lacks(plan),
    )
    return ProfileReport(
        threads=limits.threads,
        seconds=measured["seconds"],
        instrumented=measured["instrumented"],
        operators=tuple(
            replace(
                one,
                predicted=one.times * predicted.get(one.kernel, 0.0),
                lacks=lacks.get(one.kernel, ""),
            )
            for one in (
                *map(_repeated, operators, measured["times"]),
                _runtime(measured["between"]),
            )
        ),
        limits=limits,
        pages=measured["pages"],
    )


def _lacks(plan: Plan) -> dict[str, str]:
    return {
        kernel.name: "; ".join(
            f"{lack.kind} ({lack.detail}), about {lack.cost_us:.0f} µs"
            + (f", because {lack.reason}" if lack.reason else "")
            for lack in kernel.lacks
        )
        for kernel in plan.kernels
        if kernel.lacks
    }


def _repeated(operator: Operator, times: int) -> Operator:
    return replace(operator, flops=operator.flops * times, times=times)


def operators_of(
    plan: Plan, calls: Iterable[tuple[str, float, float, int, int]]
) -> tuple[Operator, ...]:
    """Return an operator for each call, named after the plan's operator that it computes.

    calls: kernel, median and least seconds, bytes of weights and other bytes, in calling order.
    """
    calls, cpu = tuple(calls), parse_target(plan.target)
    transforms = {one.kernel: one for one in plan.transforms}
    operators = []
    named = operators_in_turn(plan.ops, (kernel for kernel, *_ in calls))
    for (kernel, seconds, fastest, weights, others), op in zip(calls, named, strict=True):
        name, kind, work, flops, sequence = kernel, OTHER, "", 0, None
        if op is not None:
            name, kind, work, flops = op.name, _kind(op), op.workload, op.flops
            sequence = _sequence(op, cpu)
        elif kernel in transforms:
            kind, work = TRANSFORM, transforms[kernel].shape_text
        operators.append(
            Operator(
                name=name,
                kernel=kernel,
                kind=kind,
                work=work,
                seconds=seconds,
                fastest=fastest,
                flops=flops,
                weights=weights,
                others=others,
                sequence=sequence,
            )
        )
    return tuple(operators)


def _runtime(seconds: float) -> Operator:
    """Return the time between calls: copies of inputs and outputs, and the calling itself."""
    return Operator(
        name=RUNTIME,
        kernel=RUNTIME,
        kind=RUNTIME,
        work="",
        seconds=seconds,
        fastest=seconds,
        flops=0,
        weights=0,
        others=0,
    )


def _sequence(op: PlannedOperator, cpu: CpuTarget) -> InstructionSequence | None:
    """Return the multiplying instructions of an operator that sums integers, or is in tiles."""
    if op.scheme is not None and op.scheme.template == SplitScheme.template:
        return TileSequence(BFLOAT16_PRODUCTS, parts=PARTS)
    if op.numerics is None or op.scheme is None:
        return None
    numerics = Numerics.take_from({"numerics": value_to_json(op.numerics)})
    if op.scheme.template == MatrixScheme.template:
        unit = cpu.find_matrix_unit(numerics)
        in_tiles = unit is not None and unit.instruction.in_tiles
        return TileSequence(replace(numerics, output=numerics.sum)) if in_tiles else None
    if op.numerics.sum != "int32":
        return None
    groups = op.scheme.parameters.get("int16_groups")
    return DotSequence(numerics, groups if isinstance(groups, int) and groups else 1)


def _kind(op: PlannedOperator) -> str:
    """Return the class of an operator that has a kernel; that of convolutions is the algorithm."""
    if op.scheme is not None and op.kind != DENSE:
        return CONVOLUTION + op.scheme.algorithm
    return POOL if op.kind == "global_pool" else op.kind
