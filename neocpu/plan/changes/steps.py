"""The steps of an artifact's run, and their counterparts in another artifact of the same model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.plan.kernels import OTHER, RUNTIME, TRANSFORM, LayoutTransform
from neocpu.plan.operators import PlannedScheme
from neocpu.plan.pages.program_graph import Node, program_graph
from neocpu.plan.plan import Plan
from neocpu.runtime.header import ArtifactHeader

Value: TypeAlias = tuple[str, tuple[int, ...]]  # a tensor's name, and shape without the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call of a kernel, all transforms between two layouts of one shape, or the runtime."""

    name: str  # name of the plan's operator, or else of the kernel; the layouts of transforms
    kind: str  # kind of the operator, or ``transform``, ``other`` or ``runtime``
    workload: str = ""  # computation, in the plan's words; the shape of transforms
    scheme: PlannedScheme | None = None  # scheme of a convolution or dense layer
    layouts: tuple[str, ...] = ()  # layouts that it reads and writes
    precision: str = ""  # numbers that it computes with; empty if the plan does not have it
    predicted_us: float  # predicted microseconds of all its calls in a run
    measured_us: float | None = None  # of all its calls; None if unmeasured
    source: str = ""  # source of the prediction
    times: int = 1  # number of calls in a run
    values: tuple[Value, ...] = field(default=())  # tensors of the model that it completes

    @property
    def us(self) -> float:
        """Measured microseconds, or else predicted ones."""
        return self.predicted_us if self.measured_us is None else self.measured_us

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "workload": self.workload,
            "scheme": value_to_json(self.scheme),
            "layouts": list(self.layouts),
            "precision": self.precision,
            "predicted_us": self.predicted_us,
            "measured_us": self.measured_us,
            "cost_source": self.source,
            "times": self.times,
            "values": [name for name, _ in self.values],
        }


def steps_of(header: ArtifactHeader, profile: Mapping[str, Any] | None = None) -> tuple[Step, ...]:
    """Return the steps of an artifact, or of one signature of a set: calls, transforms, runtime.

    profile: the JSON form of `neocpu.plan.profiling.operator_times.ProfileReport`.
    Raises ArithmeticError, LookupError, ValueError: its plan, which anybody wrote, does not fit.
    """
    plan = header.plan
    shapes = {value.name: value.shape[1:] for value in plan.values}
    measured = [float(one["seconds"]) * 1e6 for one in profile["operators"]] if profile else []
    calls = [node for node in program_graph(header).nodes if node.kernel is not None]
    found = list(zip(calls, _taken(measured, len(calls)), strict=True))
    return (
        *(_call(node, plan, shapes, us) for node, us in found if node.kind != TRANSFORM),
        *_transforms([(node, us) for node, us in found if node.kind == TRANSFORM], plan),
        *_runtime(plan, measured[len(calls)] if measured else None),
    )


def _taken(measured: Sequence[float], count: int) -> Sequence[float | None]:
    return measured[:count] if measured else [None] * count


def _call(node: Node, plan: Plan, shapes: Mapping[str, tuple[int, ...]], us: float | None) -> Step:
    values = tuple((name, shapes[name]) for name in node.makes)
    if node.op is None:
        return Step(
            name=node.name,
            kind=node.kind,
            predicted_us=node.predicted_us or 0.0,
            measured_us=us,
            source="estimated",
            times=node.times,
            values=values,
        )
    op = plan.ops[node.op]
    return Step(
        name=node.name,
        kind=node.kind,
        workload=op.workload,
        scheme=op.scheme,
        layouts=(op.in_layout, op.out_layout),
        precision=op.precision,
        predicted_us=op.cost_us if node.predicted_us is None else node.predicted_us,
        measured_us=us,
        source=op.cost_source,
        times=node.times,
        values=values,
    )


def _transforms(found: Sequence[tuple[Node, float | None]], plan: Plan) -> Iterator[Step]:
    alike: dict[tuple[str, str, str], list[tuple[Node, float | None, LayoutTransform]]]
    alike = defaultdict(list)
    for node, us in found:
        assert node.transform is not None
        one = plan.transforms[node.transform]
        alike[one.source, one.destination, one.shape_text].append((node, us, one))
    for (before, after, shape), each in alike.items():
        known = [us for _, us, _ in each if us is not None]
        yield Step(
            name=f"{before} → {after}",
            kind=TRANSFORM,
            workload=shape,
            layouts=(before, after),
            predicted_us=sum(
                one.cost_us if node.predicted_us is None else node.predicted_us
                for node, _, one in each
            ),
            measured_us=sum(known) if known else None,
            source=each[0][2].cost_source,
            times=sum(node.times for node, _, _ in each),
        )


def _runtime(plan: Plan, us: float | None) -> Iterator[Step]:
    for kernel in plan.kernels:
        if kernel.kind == RUNTIME:
            yield Step(name=kernel.name, kind=RUNTIME, predicted_us=kernel.cost_us, measured_us=us)


UNPLANNED: Final = (TRANSFORM, OTHER, RUNTIME)  # kinds of steps that do not identify a model


@dataclass(frozen=True, slots=True)
class Pair:
    """A step of one artifact and its counterpart in the other; None where there is none."""

    before: Step | None
    after: Step | None
    by: str = ""  # what both have: ``tensor``, ``workload``, ``operator`` (unfused) or ``name``


def pair_up(before: Sequence[Step], after: Sequence[Step]) -> tuple[Pair, ...]:
    """Return all steps of both, in the order of ``after``; removed steps keep their old places.

    Steps that make the same tensor are paired first, then those that compute the same, in order.
    """
    rules: tuple[tuple[str, Callable[[Step], Iterable[Hashable]]], ...] = (
        ("tensor", lambda step: step.values[::-1]),
        ("workload", lambda step: [(step.kind, step.workload)] if step.workload else []),
        ("operator", lambda step: [(step.kind, bare(step.workload))] if step.workload else []),
        ("name", lambda step: [(step.kind, step.name)]),
    )
    partner: dict[int, tuple[int, str]] = {}
    taken: set[int] = set()
    for by, keys in rules:
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for place, step in enumerate(after):
            if place not in taken:
                for key in keys(step):
                    waiting[key].append(place)
        for place, step in enumerate(before):
            if place in partner:
                continue
            free = (i for key in keys(step) for i in waiting[key] if i not in taken)
            found = next((i for i in free if _may_pair(step, after[i])), None)
            if found is not None:
                partner[place] = found, by
                taken.add(found)
    return _in_order(before, after, partner)


def bare(workload: str) -> str:
    """Return a workload without fused operators and without element types.

    >>> bare("relu+ 1x64x56x56 -> 64, 3x3 /2 +bias_add +relu")
    '1x64x56x56 -> 64, 3x3 /2'
    """
    size, *more = workload.split(", ")
    # Convolutions have their window next. Element types follow.
    kept = ", ".join([size, *(text for text in more[:1] if text[:1].isdigit())])
    return " ".join(word for word in kept.split() if not re.match(r"\+|\S*\+$", word))


def planned(steps: Iterable[Step]) -> int:
    return sum(step.kind not in UNPLANNED for step in steps)


def _may_pair(one: Step, other: Step) -> bool:
    """Whether both compute or neither does: a transform may make the same tensor as an operator."""
    return (one.kind in (TRANSFORM, RUNTIME)) == (other.kind in (TRANSFORM, RUNTIME))


def _in_order(
    before: Sequence[Step], after: Sequence[Step], partner: dict[int, tuple[int, str]]
) -> tuple[Pair, ...]:
    placed: list[tuple[float, Pair]] = []
    last = -1.0
    for place, step in enumerate(before):
        if place in partner:
            at, by = partner[place]
            placed.append((at, Pair(step, after[at], by)))
            last = at
        else:
            placed.append((last + 0.5, Pair(step, None)))
    taken = {at for at, _ in partner.values()}
    placed += [(at, Pair(None, step)) for at, step in enumerate(after) if at not in taken]
    return tuple(pair for _, pair in sorted(placed, key=lambda each: each[0]))
