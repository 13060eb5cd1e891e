"""What an artifact does in a run, in parts that can be found again in another artifact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from neocpu.plan.pages.program_graph import TRANSFORM, Node, program_graph
from neocpu.runtime.header import ArtifactHeader

RUNTIME: Final = "runtime"
"""What lies between the kernels."""

Value: TypeAlias = tuple[str, tuple[int, ...]]
"""A tensor of the model by its name, and its shape without the batch."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a kernel, all transforms between two layouts of one shape, or the runtime.

    Attributes
    ----------
    name : str
        Of the plan's operator, else the kernel; of transforms, the layouts.
    kind : str
        The operator's, ``transform``, ``other`` or ``runtime``.
    workload : str
        What it computes, as the plan says it; of transforms, the shape.
    scheme : mapping or None
        Parameters by name, the template's among them.
    layouts : tuple of str
        It reads and writes.
    predicted_us : float
        Of all its times in a run.
    measured_us : float or None
        The same, where it was measured.
    source : str
        Where the prediction is from.
    times : int
        How often a run calls it.
    values : tuple of Value
        Tensors of the model that are there after it.
    """

    name: str
    kind: str
    workload: str
    scheme: Mapping[str, Any] | None
    layouts: tuple[str, ...]
    precision: str
    predicted_us: float
    measured_us: float | None = None
    source: str = ""
    times: int = 1
    values: tuple[Value, ...] = field(default=())

    @property
    def us(self) -> float:
        """Measured, or else predicted microseconds."""
        return self.predicted_us if self.measured_us is None else self.measured_us

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "kind": self.kind,
            "workload": self.workload,
            "scheme": None if self.scheme is None else dict(self.scheme),
            "layouts": list(self.layouts),
            "precision": self.precision,
            "predicted_us": self.predicted_us,
            "measured_us": self.measured_us,
            "cost_source": self.source,
            "times": self.times,
            "values": [name for name, _ in self.values],
        }


def steps_of(header: ArtifactHeader, profile: Mapping[str, Any] | None = None) -> tuple[Step, ...]:
    """Return what an artifact does, or one signature of a set, in calling order.

    Transforms come after the calls, then the runtime.

    Parameters
    ----------
    profile : mapping or None
        The JSON form of `neocpu.bench.profile.operator_times.ProfileReport`.

    Raises
    ------
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError
        If its plan is none: anybody may have written it.
    """
    plan = header.plan
    shapes = {str(value[0]): tuple(value[4][1:]) for value in plan.get("values", ())}
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


def _call(
    node: Node, plan: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], us: float | None
) -> Step:
    op = {} if node.op is None else plan["ops"][node.op]
    cost = op.get("cost_us", 0.0) if node.predicted_us is None else node.predicted_us
    return Step(
        node.name,
        node.kind,
        str(op.get("workload", "")),
        op.get("scheme"),
        (str(op["in_layout"]), str(op["out_layout"])) if op else (),
        str(op.get("precision", "fp32")) if op else "",
        float(cost),
        us,
        str(op.get("cost_source", "estimated")),
        node.times,
        tuple((name, shapes[name]) for name in node.makes),
    )


def _transforms(
    found: Sequence[tuple[Node, float | None]], plan: Mapping[str, Any]
) -> Iterator[Step]:
    alike: dict[tuple[str, str, str], list[tuple[Node, float | None, Mapping[str, Any]]]]
    alike = defaultdict(list)
    for node, us in found:
        one = plan["transforms"][node.transform]
        shape = "x".join(map(str, one["shape"]))
        alike[str(one["from"]), str(one["to"]), shape].append((node, us, one))
    for (before, after, shape), each in alike.items():
        known = [us for _, us, _ in each if us is not None]
        yield Step(
            f"{before} → {after}",
            TRANSFORM,
            shape,
            None,
            (before, after),
            "",
            sum(
                float(one["cost_us"]) if node.predicted_us is None else node.predicted_us
                for node, _, one in each
            ),
            sum(known) if known else None,
            str(each[0][2].get("cost_source", "estimated")),
            sum(node.times for node, _, _ in each),
        )


def _runtime(plan: Mapping[str, Any], us: float | None) -> Iterator[Step]:
    for one in plan.get("kernels", ()):
        if one["kind"] == RUNTIME:
            name = str(one["kernel"])
            yield Step(name, RUNTIME, "", None, (), "", float(one["cost_us"]), us)
