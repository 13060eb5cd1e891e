"""The page of a tuning run: a curve for each layer, all schemes tried, and their noise."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from neocpu.plan.result_pages import parts

Row: TypeAlias = Mapping[str, Any]

STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2)  # upper ends of classes of spreads

WIDE: Final = 6.0  # ratio of schemes above which a curve's axis is logarithmic

COLUMNS: Final = (
    parts.Column("layer", "name"),
    parts.Column("times", "count"),
    parts.Column("before", "us"),
    parts.Column("best", "us"),
    parts.Column("gained in all", "gain"),
    parts.Column("noise", "share"),
    parts.Column("tried", "count"),
    parts.Column("failed", "count", True),
    parts.Column("left", "count", True),
    parts.Column("GFLOP/s", "count", True),
    parts.Column("best scheme", "text", True),
)


def tuning_page(title: str, report: Row, scheme_text: Callable[[Any], str]) -> str:
    """Return a page, as HTML, of the JSON document ``report`` of ``neocpu tune --json``."""
    return parts.result_page(title, tuning_sections(report, scheme_text))


def tuning_sections(report: Row, scheme_text: Callable[[Any], str]) -> tuple[parts.Section, ...]:
    layers = sorted(report["workloads"], key=_gained, reverse=True)
    measured = [layer for layer in layers if layer["trials"]]
    rows = tuple(_row(layer, scheme_text) for layer in measured)
    charts = tuple(_curve(layer, scheme_text) for layer in measured)
    choice = parts.Choice(parts.Table(columns=COLUMNS, rows=rows, sort=4), charts)
    return (
        parts.Section("Totals", "What tuning bought", tuple(_totals(report, measured))),
        parts.Section(
            "Layers",
            "Every layer that was measured",
            (choice,) if measured else (),
            "Choose a layer to see its curve. Each dot is a scheme that was tried, at its fastest "
            "repeat, with a thin line up to its slowest. The steps are the best so far. The dashed "
            "line is the scheme that a compilation would have chosen before."
            if measured
            else "Nothing was measured: all layers keep the schemes that were known before.",
        ),
        parts.Section("Tried", "What was tried, and how noisy it was", tuple(_tried(measured))),
    )


def _totals(report: Row, measured: Sequence[Row]) -> list[parts.Part]:
    before, now = report["before_us"], report["now_us"]
    tiles = (
        parts.Tile(report["measured"], "count", f"schemes measured, {report['failed']} failed"),
        parts.Tile(report["seconds"] * 1e6, "us", "that it took"),
        parts.Tile(before, "us", "of the layers measured, as chosen before"),
        parts.Tile(now, "us", "now"),
        parts.Tile(before / now if now else None, "times", "as fast"),
        parts.Tile(report["gain_left"], "share", "of a network's time expected of more"),
    )
    return [parts.Tiles(tiles), *([_network(measured)] if measured else [])]


def _network(measured: Sequence[Row]) -> parts.Chart:
    """Return the time of all layers with their best schemes so far, over the time of tuning."""
    best = {i: layer["before_us"] for i, layer in enumerate(measured) if layer["before_us"]}
    trials = sorted(
        (trial["seconds"], i, min(trial["repeats_us"], default=math.inf))
        for i, layer in enumerate(measured)
        for trial in layer["trials"]
    )
    first = sum(us * measured[i]["count"] for i, us in best.items())
    along, total = [0.0], [first]
    for seconds, i, us in trials:
        if i not in best:
            continue
        best[i] = min(best[i], us)
        along.append(seconds)
        total.append(sum(us * measured[k]["count"] for k, us in best.items()))
    return parts.Chart(
        title="All layers, each as often as it is run, with the best so far",
        across="seconds of tuning",
        up="time of a run",
        unit="us",
        along=tuple(along),
        lines=(parts.Line("best so far", tuple(total), "step"),),
    )


def _curve(layer: Row, scheme_text: Callable[[Any], str]) -> parts.Chart:
    repeats = [trial["repeats_us"] for trial in layer["trials"]]
    fastest = tuple(min(each) if each else None for each in repeats)
    known = [us for us in fastest if us is not None]
    running = itertools.accumulate(
        (us if us is not None else math.inf for us in fastest), min, initial=math.inf
    )
    best = tuple(us if math.isfinite(us) else None for us in list(running)[1:])
    lines = [
        parts.Line(
            "tried", fastest, "dots", fastest, tuple(max(each, default=None) for each in repeats)
        ),
        parts.Line("best so far", best, "step"),
    ]
    if layer["before_us"] is not None:
        lines.append(parts.Line("before", (layer["before_us"],) * len(fastest), "limit"))
    return parts.Chart(
        title=layer["workload"],
        across="schemes tried",
        up="time of a call",
        unit="us",
        along=tuple(float(number) for number in range(1, len(fastest) + 1)),
        lines=tuple(lines),
        names=tuple(_name(i, trial, scheme_text) for i, trial in enumerate(layer["trials"], 1)),
        log_y=bool(known) and max(known) > WIDE * min(known),
    )


def _name(number: int, trial: Row, scheme_text: Callable[[Any], str]) -> str:
    failed = f"; failed: {trial['error']}" if trial["error"] else ""
    return f"{number}, {scheme_text(trial['scheme'])}{failed}"


def _row(layer: Row, scheme_text: Callable[[Any], str]) -> tuple[Any, ...]:
    measured = layer["best_us"] if layer["source"] == "measured" else None
    return (
        layer["workload"],
        layer["count"],
        layer["before_us"],
        measured,
        _gained(layer),
        layer["noise"],
        layer["measured"],
        layer["failed"],
        layer["left"],
        layer["gflops"] and round(layer["gflops"]),
        scheme_text(layer["scheme"]),
    )


def _gained(layer: Row) -> float:
    if layer["before_us"] is None or layer["source"] != "measured":
        return 0.0
    return float(layer["count"] * (layer["before_us"] - layer["best_us"]))


def _tried(measured: Sequence[Row]) -> list[parts.Part]:
    trials = [trial for layer in measured for trial in layer["trials"]]
    kinds = Counter(str(trial["scheme"].get("template", "move")) for trial in trials)
    won = Counter(
        str(layer["scheme"].get("template", "move")) for layer in measured if layer["scheme"]
    )
    spreads = [max(r) / min(r) - 1 for trial in trials if len(r := trial["repeats_us"]) > 1]
    errors = Counter(trial["error"] for trial in trials if trial["error"])
    shown: list[parts.Part] = [
        parts.Bars("Schemes tried, by algorithm", "count", tuple(_short(kinds.most_common()))),
        parts.Bars("Layers won, by algorithm", "count", tuple(_short(won.most_common()))),
        parts.Bars("Slowest repeat over the fastest, schemes", "count", _counted(spreads)),
    ]
    if errors:
        columns = (parts.Column("what failed", "name"), parts.Column("schemes", "count"))
        shown.append(parts.Table(columns=columns, rows=tuple(errors.most_common()), title="Failed"))
    return shown if trials else []


def _short(counts: Iterable[tuple[str, int]]) -> list[tuple[str, float]]:
    return [(parts.algorithm(name), float(count)) for name, count in counts]


def _counted(spreads: Sequence[float]) -> tuple[tuple[str, float], ...]:
    edges = (0.0, *STEPS, math.inf)
    names = [*(f"up to {edge:.0%} more" for edge in STEPS), f"over {STEPS[-1]:.0%} more"]
    return tuple(
        (name, float(sum(low <= spread < high for spread in spreads)))
        for name, (low, high) in zip(names, itertools.pairwise(edges), strict=True)
    )
