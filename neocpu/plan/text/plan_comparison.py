"""Two artifacts of one model, as ``neocpu explain A.so B.so`` prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neocpu.foundation.console.terminal import Terminal, echo, print_fields, print_table
from neocpu.foundation.units import duration, plural
from neocpu.plan.text.page_file import check_page_file, write_page_file
from neocpu.plan.text.plan_page import measured_profile
from neocpu.plan.text.plan_screen import showing_plan_of
from neocpu.plan.text.plan_text import plan_fields

if TYPE_CHECKING:
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.plan.changes.plan_change import Change, PlanChange, Side
    from neocpu.runtime.header import ArtifactHeader

TURNS: Final = 3  # number of times that both are measured


def explain_change(
    terminal: Terminal,
    artifacts: tuple[Path, Path],
    variant: str | None,
    shapes: Mapping[str, Given],
    html: Path | None,
    *,
    profile: bool,
    sort: bool,
) -> None:
    """Print how the second of two artifacts differs from the first, or write a page of it.

    profile: whether to run both first, and compare measured times.
    Raises ArtifactError: one is damaged or foreign, or its plan cannot be shown or run.
    Raises UsageError: they are of different models, or the page cannot be written or is one.
    """
    from neocpu.plan.changes.plan_change import compare_plans
    from neocpu.runtime.artifact import read_header

    check_page_file(html, artifacts)
    headers = [read_header(path, variant).of(shapes) for path in artifacts]
    profiles = _profiles(terminal, artifacts, headers) if profile else (None, None)
    before, after = map(_side, artifacts, headers, profiles)
    found = compare_plans(before, after)
    facts = _differing(*map(_facts, artifacts, headers))
    if html is not None:
        from neocpu.plan.result_pages.plan_change_page import plan_change_page

        write_page_file(terminal, html, plan_change_page(found, facts))
    if html is None or terminal.json:
        terminal.result(found.to_json(), lambda: _show(found, facts, sort=sort))


def _profiles(
    terminal: Terminal, artifacts: Sequence[Path], headers: Sequence[ArtifactHeader]
) -> list[Mapping[str, Any]]:
    """Return the fastest of several times of each operator; disturbances meet both, by turns."""
    from neocpu.bench.limits.roofline import measure_limits

    pairs = list(zip(artifacts, headers, strict=True))
    with terminal.progress() as on_progress:
        limits = measure_limits(max(header.threads for header in headers), on_progress)
    turns = [[measured_profile(terminal, *pair, limits) for pair in pairs] for _ in range(TURNS)]
    return [
        {
            "operators": [
                {"seconds": min(float(one["seconds"]) for one in times)}
                for times in zip(*(turn["operators"] for turn in each), strict=True)
            ]
        }
        for each in zip(*turns, strict=True)
    ]


def _side(path: Path, header: ArtifactHeader, measured: Mapping[str, Any] | None) -> Side:
    from neocpu.plan.changes.plan_change import Side
    from neocpu.plan.changes.steps import steps_of

    with showing_plan_of(path):
        side = Side(path.name, header, steps_of(header, measured))
        side.to_json()
    return side


def _facts(path: Path, header: ArtifactHeader) -> Mapping[str, str]:
    with showing_plan_of(path):
        return dict(plan_fields(header, ()))


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str, str]]:
    pairs = ((name, before.get(name, "-"), after.get(name, "-")) for name in {**before, **after})
    return [(name, one, other) for name, one, other in pairs if one != other]


def _show(found: PlanChange, facts: Sequence[tuple[str, str, str]], *, sort: bool) -> None:
    from neocpu.plan.changes.plan_change import REASONS, changed

    echo(f"{found.before.label} → {found.after.label}")
    fields = [(name, f"{one} → {other}") for name, one, other in facts]
    print_fields([*fields, ("a run", _run_text(found))])
    echo()
    order = changed(found)
    shown = order if sort else [each for each in found.changes if each.reason != "same"]
    print_table(
        ("op", "what changed", "before µs", "after µs", "bought µs"),
        [*(_row(change) for change in shown), *_rest(found)],
        right=("before µs", "after µs", "bought µs"),
    )
    echo()
    print_table(
        ("why", "steps", "bought µs"),
        [
            (REASONS[name], str(count), f"{us:+.1f}")
            for name, (count, us) in found.by_reason.items()
        ],
        right=("steps", "bought µs"),
    )


def _run_text(found: PlanChange) -> str:
    before, after = (duration(side.us / 1e6) for side in (found.before, found.after))
    faster = f", {found.before.us / found.after.us:.2f} times as fast" if found.after.us else ""
    return f"{before} → {after}{faster}"


def _row(change: Change) -> tuple[str, ...]:
    words = "; ".join(change.words)
    before, after = (_us(value) for value in (change.before_us, change.after_us))
    return change.step.name, words, before, after, f"{change.bought_us:+.1f}"


def _rest(found: PlanChange) -> list[tuple[str, ...]]:
    same = [change for change in found.changes if change.reason == "same"]
    us = f"{sum(change.after_us or 0.0 for change in same):.1f}"
    rows = [("the rest", f"{plural(len(same), 'step')} as before", us, us, "+0.0")] if same else []
    total: tuple[Any, ...] = (found.before.us, found.after.us)
    return [*rows, ("total", "", *map(_us, total), f"{found.bought_us:+.1f}")]


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
