"""The plan of an artifact as ``neocpu explain`` prints it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neocpu.foundation.console.terminal import echo, print_fields, print_table
from neocpu.foundation.errors import ArtifactError, NeoCPUError
from neocpu.foundation.units import plural
from neocpu.plan.kernels import OTHER, RUNTIME, TRANSFORM
from neocpu.plan.text.plan_text import plan_fields

if TYPE_CHECKING:
    from neocpu.plan.outcome import CalibratedLayer
    from neocpu.plan.plan import Plan
    from neocpu.runtime.header import ArtifactHeader

FUSED: Final = "fused"  # share of an operator without a kernel: another's kernel has its time


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
    """Print a line for each operator and other kernel, one for all transforms, and the total."""
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


SMALL: Final = 0.005  # share of a run below which a shortcoming is only counted, and not listed
UNKNOWN: Final = "no reason is known: please report this model"


def show_lacks(plan: Plan) -> None:
    """Print a line for each shortcoming of a kernel that costs enough, and count the others."""
    total = plan.predicted_us
    found = [(kernel.name, lack) for kernel in plan.kernels for lack in kernel.lacks]
    shown = [(name, lack) for name, lack in found if lack.cost_us >= SMALL * total]
    if not found:
        return
    echo()
    if shown:
        print_table(
            ("kernel that is not as it should be", "what it lacks", "of the run", "µs", "why"),
            [
                (
                    name,
                    str(lack),
                    f"{lack.cost_us / total:.1%}",
                    f"{lack.cost_us:.1f}",
                    lack.reason or UNKNOWN,
                )
                for name, lack in sorted(shown, key=lambda each: -each[1].cost_us)
            ],
            right=("of the run", "µs"),
        )
    if small := len(found) - len(shown):
        rest = sum(lack.cost_us for _, lack in found if lack.cost_us < SMALL * total)
        echo(
            f"{plural(small, 'shortcoming')} of kernels below {SMALL:.1%} of the run each, "
            f"{rest:.1f} µs in total."
        )


def with_launches(header: ArtifactHeader) -> Plan:
    """Return the plan with the names of the operators of each launch."""
    return replace(header.plan, launches=tuple(_names(header)))


def show_launches(header: ArtifactHeader) -> None:
    if names := _names(header):
        echo()
        echo("launched together:")
        for each in names:
            echo(f"  {' + '.join(each)}")


def _names(header: ArtifactHeader) -> list[tuple[str, ...]]:
    from neocpu.runtime.described_calls import describe_calls

    calls = tuple(call.name for call in describe_calls(header))
    return [calls[first : first + count] for first, count in header.launches]


@contextmanager
def showing_plan_of(artifact: Path) -> Iterator[None]:
    """Turn all errors of showing a plan into ArtifactError: anybody may have written it."""
    try:
        yield
    except NeoCPUError:  # some are a ValueError or a TypeError too
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact} has a plan that cannot be shown ({error!r}); compile the model again"
        ) from error


def show_plan(
    header: ArtifactHeader, others: Sequence[tuple[str, str]], *, sort: bool, transforms: bool
) -> None:
    echo(header.name)
    print_fields(plan_fields(header, others))
    echo()
    show_shares(header.plan, sort=sort)
    show_launches(header)
    show_lacks(header.plan)
    if transforms:
        echo()
        show_transforms(header.plan)
