"""What each part of a run takes, as ``neocpu explain`` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from neocpu.foundation.console.terminal import echo, print_table
from neocpu.foundation.units import plural
from neocpu.plan.text.plan_text import scheme_text

FUSED: Final = "fused"
"""The share of what has no kernel of its own: that of the kernel it became a part of has it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A part of a run; its share is `FUSED` where another row has what it takes."""

    name: str
    cells: tuple[str, ...]  # what it computes: workload, scheme, layouts
    microseconds: float
    share: str
    source: str
    precision: str = ""
    layer: str | None = None


def show_shares(plan: Mapping[str, Any], *, sort: bool) -> None:
    """Print a line for each operator and each other kernel, the transforms in one, and the total.

    Parameters
    ----------
    sort : bool
        Whether what takes longest comes first; else they come as the model has them.
    """
    rows = _rows(plan)
    if sort:
        rows.sort(key=lambda row: (row.share == FUSED, -row.microseconds))
    if plan.get("kernels"):
        total = sum(float(kernel["share"]) for kernel in plan["kernels"])
        rows.append(_Row("total", ("",) * 4, float(plan["predicted_us"]), f"{total:.1%}", ""))
    # An older neocpu had no other precision, and says nothing of it.
    mixed = {row.precision for row in rows} - {"", "fp32"}
    # Of a model compiled with calibration data: what each layer saves, and does to the outputs.
    layers = {each["layer"]: each for each in (plan.get("calibration") or {}).get("layers", ())}
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
                *(_saved(layers.get(row.layer)) if layers else ()),
                row.source,
            )
            for row in rows
        ],
        right=("share", "µs", *cost),
    )


def _rows(plan: Mapping[str, Any]) -> list[_Row]:
    rows = [
        _Row(
            op["name"],
            (op["workload"], scheme_text(op["scheme"]), op["in_layout"], op["out_layout"]),
            # What it takes in the run, where the plan has that: the search compared costs.
            op["cost_us"] if op.get("predicted_us") is None else op["predicted_us"],
            _share(op.get("share"), plan),
            op["cost_source"],
            op.get("precision", "fp32"),
            op.get("layer"),
        )
        for op in plan["ops"]
    ]
    kernels = plan.get("kernels", ())  # an older neocpu knew of the plan's operators alone
    for kernel in kernels:
        if kernel["kind"] in ("other", "runtime"):
            calls = plural(kernel["calls"], "call") if kernel["kind"] == "other" else "-"
            cost, share = kernel["cost_us"], _share(kernel["share"], plan)
            rows.append(
                _Row(kernel["kernel"], (calls, "-", "-", "-"), cost, share, kernel["cost_source"])
            )
    if plan["transforms"]:
        rows.append(_transforms(plan))
    return rows


def _transforms(plan: Mapping[str, Any]) -> _Row:
    """Return all of them as one, whose source is that of most of their time."""
    found = [kernel for kernel in plan.get("kernels", ()) if kernel["kind"] == "transform"]
    cost = sum(float(one["cost_us"]) for one in found or plan["transforms"])
    sources: Counter[str] = Counter()
    for one in plan["transforms"]:
        sources[one.get("cost_source", "estimated")] += one["cost_us"]
    share = _share(sum(float(one["share"]) for one in found), plan)
    count = plural(len(plan["transforms"]), "transform")
    return _Row("layouts", (count, "-", "-", "-"), cost, share, sources.most_common(1)[0][0])


def _share(share: float | None, plan: Mapping[str, Any]) -> str:
    if not plan.get("kernels"):
        return ""
    return FUSED if share is None else f"{share:.1%}"


def _saved(layer: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("", "") if layer is None else (f"{layer['saved_us']:.1f}", f"{layer['noise']:.1e}")


def show_transforms(plan: Mapping[str, Any]) -> None:
    """Print the layout transforms, equal ones in one line: a network repeats its blocks."""
    if not plan["transforms"]:
        echo("No layout transforms.")
        return
    counted = Counter(
        (
            t["from"],
            t["to"],
            "x".join(map(str, t["shape"])),
            t["cost_us"],
            t.get("cost_source", "estimated"),  # an older neocpu measured none
        )
        for t in plan["transforms"]
    )
    print_table(
        ("transform", "to", "shape", "times", "µs", "source"),
        [
            (before, after, shape, str(times), f"{cost:.1f}", source)
            for (before, after, shape, cost, source), times in counted.items()
        ],
        right=("times", "µs"),
    )
