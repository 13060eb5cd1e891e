"""Throughput of several models as tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from neocpu.bench.engines.contender_process import LEAST_LAPS
from neocpu.bench.engines.contenders import OWN
from neocpu.bench.results.chart import Figure, caption
from neocpu.bench.results.presentation import Presentation, Run
from neocpu.bench.results.sample_statistics import Ratio
from neocpu.bench.results.table import Columns, Table, interval
from neocpu.bench.throughput.throughput_report import ModeResult, Summary, ThroughputReport
from neocpu.foundation.units import plural
from neocpu.plan.result_pages.parts import Chart, Line, Unit, chosen

NONE: Final = "-"
METHOD: Final = (
    "Every engine makes several calls at once, in each of its own ways, on {threads} in all: "
    "neocpu on streams that share the weights, compiled for the threads of one of them (with one "
    "each, by --goal throughput); ONNX "
    "Runtime with a session of fewer threads for each call, and with one session that several "
    "threads call; OpenVINO by its hint THROUGHPUT and its queue of asynchronous requests, with as "
    "many streams as are named and with as many as it chooses; ncnn with a net for each call. An "
    "engine's fastest way counts. Each runs in a process of its own, which is stopped (SIGSTOP) "
    "unless it is its turn; after a warm-up they take turns in {rounds} rounds, in an order drawn "
    "anew for each, and in each make at least {laps} calls on each stream. Figures are medians "
    "over rounds of the time from the first call to the end of the last, for each image; the "
    "interval of a ratio is a bootstrap over rounds. Memory is that of the process once every "
    "stream was used, measured while no other contender is there: all of its resident pages (RSS), "
    "the engine and the weights included, and the same with shared pages counted in part (PSS)."
)


def present(reports: Sequence[ThroughputReport], run: Run) -> Presentation:
    speeds = [_chart(one, "images a second", "number", lambda m: m.per_second) for one in reports]
    memory = [_chart(one, "resident memory", "bytes", lambda m: m.memory.rss) for one in reports]
    figure = Figure(
        words="Images a second and memory over calls at once",
        note=caption(run.machine, run.threads),
        panels=tuple(chart for pair in zip(speeds, memory, strict=True) for chart in pair),
        columns=4 if len(reports) > 1 else 2,
    )
    threads = plural(run.threads[-1], "thread")
    return Presentation(
        method=METHOD.format(threads=threads, rounds=run.rounds, laps=LEAST_LAPS),
        tables=(summary_table(reports, run.peers), modes_table(reports)),
        parts=(*chosen(speeds, "model"), *chosen(memory, "model")),
        figures=(figure,),
    )


def summary_table(reports: Sequence[ThroughputReport], peers: Sequence[str]) -> Table:
    rows = [
        (
            report.name,
            *(_fastest(report.best(engine)) for engine in (OWN, *peers)),
            *(_shown(ratio) for ratio in (report.ratio, report.gain)),
            NONE if report.memory_ratio is None else f"{report.memory_ratio:.2f}",
        )
        for report in reports
    ]
    summary = Summary.of(reports)
    if len(reports) > 1:
        means = (NONE if mean is None else f"{mean:.2f}" for mean in summary.means)
        rows.append(("geometric mean", *[""] * (1 + len(peers)), *means))
    header = (
        *("model", *(f"{engine} images/s" for engine in (OWN, *peers))),
        f"{OWN} / best peer (95 %)",
        "streams / one (95 %)",
        "memory / one",
    )
    notes = [f"{one.name}: {warning}" for one in reports for warning in one.race.warnings]
    if len(reports) > 1 and summary.least is not None:
        model, value = summary.least
        notes.append(f"Least over the best peer: {model}, {value:.2f}.")
    if len(reports) > 1 and summary.most_memory is not None:
        model, value = summary.most_memory
        notes.append(f"Most memory over that of one stream: {model}, {value:.2f}.")
    return Table("Throughput", header, tuple(rows), tuple(notes))


def modes_table(reports: Sequence[ThroughputReport]) -> Table:
    columns: Columns[tuple[str, ModeResult]] = {
        "model": lambda pair: pair[0],
        "engine": lambda pair: f"{pair[1].mode.peer} {pair[1].speed.version}",
        "mode": lambda pair: pair[1].mode.name,
        "calls at once": lambda pair: str(pair[1].memory.streams),
        "images/s": lambda pair: f"{pair[1].per_second:.1f}",
        "spread of rounds": lambda pair: f"{pair[1].speed.spread:.1%}",
        "RSS MB": lambda pair: f"{pair[1].memory.rss / 1e6:.0f}",
        "PSS MB": lambda pair: f"{pair[1].memory.pss / 1e6:.0f}",
        "error": lambda pair: f"{pair[1].speed.error:.1e}" if pair[1].speed.agrees else "wrong",
    }
    pairs = ((report.name, one) for report in reports for one in report.modes)
    return Table.of("Every mode", pairs, columns)


def _fastest(result: ModeResult | None) -> str:
    return NONE if result is None else f"{result.per_second:.1f} ({result.mode.name})"


def _shown(ratio: Ratio | None) -> str:
    return NONE if ratio is None else interval(ratio)


def _chart(
    report: ThroughputReport, what: str, unit: Unit, value: Callable[[ModeResult], float]
) -> Chart:
    """Return a value of each mode over the calls at once, without modes with wrong outputs."""
    right = [one for one in report.modes if one.speed.agrees]
    counts = sorted({one.memory.streams for one in right})
    lines = []
    for way in dict.fromkeys(one.mode.way for one in right):
        known = {one.memory.streams: value(one) for one in right if one.mode.way == way}
        lines.append(Line(way, tuple(known.get(count) for count in counts)))
    title = f"{report.name}, {what}"
    along = tuple(map(float, counts))
    return Chart(
        title=title, across="calls at once", up=what, unit=unit, along=along, lines=tuple(lines)
    )
