"""The time of each part of a run, as ``neocpu explain`` prints it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from neocpu.foundation.console.terminal import echo, print_table
from neocpu.foundation.units import plural
from neocpu.plan.kernels import OTHER, RUNTIME, TRANSFORM

if TYPE_CHECKING:
    from neocpu.plan.outcome import CalibratedLayer
    from neocpu.plan.plan import Plan

FUSED: Final = "fused"
"""The share of an operator without a kernel: the kernel that it is fused into has its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A part of a run; its share is `FUSED` if another row has its time."""

    name: str
    cells: tuple[str, ...]  # what it computes: workload, scheme, layouts
    microseconds: float
    share: str
    source: str
    precision: str = ""
    layer: str | None = None


def show_shares(plan: Plan, *, sort: bool) -> None:
    """Print a line for each operator and other kernel, one for all transforms, and the total.

    sort: whether the longest come first; otherwise they come in the order of the model.
    """
    rows = _rows(plan)
    if sort:
        rows.sort(key=lambda row: (row.share == FUSED, -row.microseconds))
    if plan.kernels:
        rows.append(
            _Row(
                name="total",
                cells=("",) * 4,
                microseconds=plan.predicted_us,
                share=f"{sum(kernel.share for kernel in plan.kernels):.1%}",
                source="",
            )
        )
    mixed = {row.precision for row in rows} - {"", "fp32"}
    # With calibration data, the time that each layer saves and the noise that it adds.
    calibration = plan.calibration
    layers = {} if calibration is None else {layer.name: layer for layer in calibration.layers}
    cost = ("saves µs", "noise") if layers else ()
    print_table(
        (
            *(("op", "computes in") if mixed else ("op",)),
            *("workload", "scheme", "in", "out", "share", "µs", *cost, "source"),
        ),
        [
            (
                row.name,
                *([row.precision] if mixed else []),
                *row.cells,
                row.share,
                f"{row.microseconds:.1f}",
                *(_saved(layers.get(row.layer or "")) if layers else ()),
                row.source,
            )
            for row in rows
        ],
        right=("share", "µs", *cost),
    )


def _rows(plan: Plan) -> list[_Row]:
    rows = [
        _Row(
            name=op.name,
            cells=(
                op.workload,
                "-" if op.scheme is None else str(op.scheme),
                op.in_layout,
                op.out_layout,
            ),
            microseconds=op.time_us,
            share=_share(op.share, plan),
            source=op.cost_source,
            precision=op.precision,
            layer=op.layer,
        )
        for op in plan.ops
    ]
    for kernel in plan.kernels:
        if kernel.kind in (OTHER, RUNTIME):
            calls = plural(kernel.calls, "call") if kernel.kind == OTHER else "-"
            rows.append(
                _Row(
                    name=kernel.name,
                    cells=(calls, "-", "-", "-"),
                    microseconds=kernel.cost_us,
                    share=_share(kernel.share, plan),
                    source=kernel.cost_source,
                )
            )
    if plan.transforms:
        rows.append(_transforms(plan))
    return rows


def _transforms(plan: Plan) -> _Row:
    """Return all transforms as one row, with the source of most of their time."""
    found = [kernel for kernel in plan.kernels if kernel.kind == TRANSFORM]
    sources: dict[str, float] = defaultdict(float)
    for one in plan.transforms:
        sources[one.cost_source] += one.cost_us
    return _Row(
        name="layouts",
        cells=(plural(len(plan.transforms), "transform"), "-", "-", "-"),
        microseconds=sum(one.cost_us for one in found or plan.transforms),
        share=_share(sum(one.share for one in found), plan),
        source=max(sources, key=sources.__getitem__),
    )


def _share(share: float | None, plan: Plan) -> str:
    if not plan.kernels:
        return ""
    return FUSED if share is None else f"{share:.1%}"


def _saved(layer: CalibratedLayer | None) -> tuple[str, str]:
    return ("", "") if layer is None else (f"{layer.saved_us:.1f}", f"{layer.noise:.1e}")


def show_transforms(plan: Plan) -> None:
    """Print the layout transforms; equal ones share a line, because networks repeat blocks."""
    if not plan.transforms:
        echo("No layout transforms.")
        return
    counted = Counter(
        (each.source, each.destination, each.shape_text, each.cost_us, each.cost_source)
        for each in plan.transforms
    )
    print_table(
        ("transform", "to", "shape", "times", "µs", "source"),
        [
            (before, after, shape, str(times), f"{cost:.1f}", source)
            for (before, after, shape, cost, source), times in counted.items()
        ],
        right=("times", "µs"),
    )
