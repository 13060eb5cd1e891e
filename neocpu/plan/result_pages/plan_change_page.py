"""The page of a comparison of two artifacts of one model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from neocpu.plan.changes.plan_change import REASONS, Change, PlanChange, changed
from neocpu.plan.result_pages import parts

COLUMNS = (
    parts.Column("operator", "name"),
    parts.Column("before", "us"),
    parts.Column("after", "us"),
    parts.Column("bought", "gain"),
    parts.Column("what changed"),
    parts.Column("why", "text", True),
    parts.Column("computes", "text", True),
    parts.Column("found by", "text", True),
)

_WHEN: Final = ("before", "after")

SMALL: Final = 0.01
"""Share of a run below which an algorithm has no bar of its own and counts as the rest."""


def plan_change_page(found: PlanChange, facts: Sequence[tuple[str, str, str]]) -> str:
    """Return the page, as HTML. `facts` that differ are a name, the value before and that after."""
    title = f"{found.before.label} → {found.after.label}"
    return parts.result_page(title, plan_change_sections(found, facts))


def plan_change_sections(
    found: PlanChange, facts: Sequence[tuple[str, str, str]]
) -> tuple[parts.Section, ...]:
    same = [change for change in found.changes if change.reason == "same"]
    steps = parts.Table(columns=COLUMNS, rows=tuple(map(_row, (*changed(found), *same))))
    return (
        parts.Section(
            "Totals", "What changed, and what it bought", tuple(_totals(found)), _hint(found)
        ),
        parts.Section(
            "Operators",
            "Every operator, before and after",
            (steps,),
            "A row for each call of a kernel, for the transforms between two layouts and for the "
            "runtime. Operators are matched by the tensors of the model that they make, else by "
            "what they compute. First comes what bought or cost most; choose a heading to sort.",
        ),
        parts.Section("Plans", "What differs in the whole", (_facts(found, facts),)),
    )


def _hint(found: PlanChange) -> str:
    measured = found.before.to_json()["measured_us"] is not None
    what = "measured inside the running network" if measured else "predicted when it was compiled"
    text = f"Times are of one run, as {what}; what was bought is what a run takes less."
    if found.before.convolutions_in != found.after.convolutions_in:
        files = f"{found.before.label} {found.after.label}"
        text += f" How far apart their outputs are: neocpu compare {files}."
    return text


def _totals(found: PlanChange) -> list[parts.Part]:
    before, after = found.before.to_json(), found.after.to_json()
    faster = found.before.us / found.after.us if found.after.us else None
    moved = before["transforms_us"] - after["transforms_us"]
    tiles = (
        parts.Tile(found.before.us, "us", "a run before"),
        parts.Tile(found.after.us, "us", "a run after"),
        parts.Tile(faster, "times", "as fast"),
        parts.Tile(
            moved,
            "gain",
            f"by transforms: {before['transforms']} before, {after['transforms']} after",
        ),
        parts.Tile(before["weight_bytes"], "bytes", "of weights before, packed"),
        parts.Tile(after["weight_bytes"], "bytes", "of weights after"),
        *_numbers(found),
    )
    reasons = tuple((REASONS[name], count, us) for name, (count, us) in found.by_reason.items())
    columns = (
        parts.Column("why", "name"),
        parts.Column("steps", "count"),
        parts.Column("bought", "gain"),
    )
    return [
        parts.Tiles(tiles),
        parts.Table(columns=columns, rows=reasons, title="What bought it", sort=2),
        _kinds(found),
    ]


def _kinds(found: PlanChange) -> parts.Bars:
    taken: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, side in enumerate((found.before, found.after)):
        for step in side.steps:
            template = step.kind if step.scheme is None else step.scheme.template
            taken[parts.algorithm(template)][number] += step.us
    least = SMALL * max(found.before.us, found.after.us)
    large = {kind: both for kind, both in taken.items() if max(both) >= least}
    rest = zip(*(both for kind, both in taken.items() if kind not in large), strict=True)
    order = sorted(large.items(), key=lambda each: -max(each[1]))
    bars = (
        (f"{kind}, {when}", us)
        for kind, both in (*order, ("the rest", tuple(map(sum, rest))))
        for when, us in zip(_WHEN, both, strict=False)
        if us
    )
    return parts.Bars("Where the time goes", "us", tuple(bars))


def _numbers(found: PlanChange) -> Iterator[parts.Tile]:
    before, after = (
        ", ".join(f"{count} {name}" for name, count in side.convolutions_in.items()) or "none"
        for side in (found.before, found.after)
    )
    if before != after:
        yield parts.Tile(after, "text", f"convolutions after; before {before}")


def _row(change: Change) -> tuple[parts.Cell, ...]:
    return (
        change.step.name,
        change.before_us,
        change.after_us,
        change.bought_us,
        "; ".join(change.words),
        change.reason,
        change.step.workload,
        change.pair.by,
    )


def _facts(found: PlanChange, facts: Sequence[tuple[str, str, str]]) -> parts.Part:
    if not facts:
        return parts.Facts((("all", "as it was"),))
    columns = (
        parts.Column("what", "name"),
        parts.Column(found.before.label),
        parts.Column(found.after.label),
    )
    return parts.Table(columns=columns, rows=tuple(facts))
