"""Latency over threads as tables and charts: measured, predicted, and the losses of each step."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from typing import Final

from neocpu.bench.results.chart import Figure, caption
from neocpu.bench.results.presentation import Presentation, Run
from neocpu.bench.results.table import Columns, Table, ms
from neocpu.bench.scaling.model_scaling import ScalingPrediction, ScalingStep
from neocpu.foundation.host import usable_cores
from neocpu.foundation.units import plural
from neocpu.plan.result_pages.parts import Chart, Line, chosen
from neocpu.schedules.estimates.parallel_run import LIMITS, ParallelCall

WORST: Final = 3  # the most operators named at each step, by their losses
METHOD: Final = (
    "The model is compiled for each number of threads. Every parallel loop of that code is timed "
    "on one thread, inside the running network: the mean over the quickest quarter of the runs, as "
    "what is measured is, without what calling it from Python takes. "
    "What it takes on several is predicted: its busiest thread has as many of its tasks as the "
    "pool deals out, it is no faster than its bytes come from the machine's caches and memory, and "
    "entering and leaving it takes longer with each thread. How fast cores read from memory is "
    "measured where the machine is one of this CPU. Calls that are launched together have one pool "
    "of tasks, the longest first. Code for another CPU is timed here, "
    "and taken to be slower there as multiply-adds are."
)


def present(found: Sequence[ScalingPrediction], run: Run) -> Presentation:
    """Return a summary, if there are several models, and each one's times, losses and charts."""
    each = tuple(table for one in found for table in (scaling_table(one), limits_table(one)))
    speeds = tuple(map(_speeds, found))
    cpu = found[0].request.machine.cpu if found else ""
    figure = Figure(
        words="Speed over the number of threads",
        note=f"predicted of a {cpu}; {caption(run.machine, run.threads)}",
        panels=speeds,
    )
    return Presentation(
        method=METHOD,
        tables=(summary_table(found), *each) if len(found) > 1 else each,
        parts=(*chosen(speeds, "model"), *chosen(list(map(_losses, found)), "model")),
        figures=(figure,),
    )


def summary_table(found: Sequence[ScalingPrediction]) -> Table:
    counts = found[0].request.counts
    errors: dict[int, list[float]] = {}
    rows = []
    for one in found:
        cells = []
        for step in one.steps:
            cell = f"{one.efficiency(step):.0%}"
            if step.error is not None:
                errors.setdefault(step.threads, []).append(abs(step.error))
                cell += f" ({step.error:+.1%})"
            cells.append(cell)
        rows.append((one.name, *cells))
    notes = tuple(
        f"With {plural(threads, 'thread')}, predictions are off by {statistics.median(known):.1%} "
        "in the median: in brackets, from what was measured."
        for threads, known in errors.items()
    )
    header = ("model", *(plural(count, "thread") for count in counts))
    return Table("Efficiency by number of threads", header, tuple(rows), notes)


def scaling_table(found: ScalingPrediction) -> Table:
    def lost(step: ScalingStep) -> list[float]:
        return [found.other_code(step), *(step.predicted.lost[limit] for limit in LIMITS)]

    columns: Columns[ScalingStep] = {
        "threads": lambda step: str(step.threads),
        "measured ms": lambda step: "" if step.measured is None else ms(step.measured),
        "predicted ms": lambda step: ms(step.predicted.seconds),
        "speed-up": lambda step: f"{found.speedup(step):.2f}",
        "efficiency": lambda step: f"{found.efficiency(step):.0%}",
    }
    rows = tuple(
        (
            *(cell(step) for cell in columns.values()),
            *(f"{seconds / step.predicted.seconds:.1%}" for seconds in lost(step)),
        )
        for step in found.steps
    )
    title = f"Scaling of {found.name} on {found.request.machine.cpu}"
    return Table(title, (*columns, "slower code", *LIMITS), rows, _notes(found))


def _notes(found: ScalingPrediction) -> tuple[str, ...]:
    machine = found.request.machine
    errors = ", ".join(
        f"{step.error:+.1%} with {plural(step.threads, 'thread')}"
        for step in found.steps
        if step.error is not None
    )
    return (
        f"Measured on {plural(usable_cores(), 'core')}; predictions are off by {errors}."
        if errors
        else f"Nothing is measured on a {machine.cpu}: its loops are timed on this CPU.",
        f"The machine: {machine.cores} cores of {machine.flops / 1e9:.0f} GFLOP/s, "
        f"{machine.memory_all / 1e9:.0f} GB/s from memory, {machine.l3 >> 20} MiB of L3 for "
        f"{plural(machine.l3_cores, 'core')}; a parallel loop costs "
        f"{machine.fork_seconds(machine.cores) * 1e6:.1f} µs on all.",
        "The last columns are shares of the predicted time; what is left is the time that one "
        "thread takes, divided by the threads.",
    )


def limits_table(found: ScalingPrediction) -> Table:
    columns: Columns[tuple[ScalingStep, ParallelCall]] = {
        "threads": lambda pair: str(pair[0].threads),
        "operator": lambda pair: pair[1].call.name,
        "limit": lambda pair: max(pair[1].lost, key=pair[1].lost.__getitem__),
        "tasks": lambda pair: _tasks(*pair),
        "one thread µs": lambda pair: f"{pair[1].call.seconds * 1e6:.1f}",
        "predicted µs": lambda pair: f"{pair[1].seconds * 1e6:.1f}",
        "of the run": lambda pair: f"{_all_lost(pair[1]) / pair[0].predicted.seconds:.1%}",
    }
    worst = (
        (step, each)
        for step in found.steps
        for each in heapq.nlargest(WORST, step.predicted.calls, key=_all_lost)
        if step.threads > 1 and _all_lost(each) > 0
    )
    note = "Of the run: what is lost, as a share of the predicted time."
    return Table.of(f"What limits {found.name} most", worst, columns, (note,))


def _all_lost(each: ParallelCall) -> float:
    return sum(each.lost.values())


def _tasks(step: ScalingStep, each: ParallelCall) -> str:
    return ", ".join(str(loop.iterations or step.threads) for loop in each.call.loops) or "1"


def _speeds(found: ScalingPrediction) -> Chart:
    counts = tuple(float(step.threads) for step in found.steps)
    measured = tuple(
        None if step.measured is None else found.alone / step.measured for step in found.steps
    )
    return Chart(
        title=f"{found.name} on a {found.request.machine.cpu}",
        across="threads",
        up="as fast as one",
        unit="times",
        along=counts,
        lines=(
            Line("every thread in full", counts, "limit"),
            Line("predicted", tuple(found.speedup(step) for step in found.steps)),
            *([Line("measured", measured, "dots")] if any(measured) else []),
        ),
        log_x=True,
        log_y=True,
    )


def _losses(found: ScalingPrediction) -> Chart:
    lines = tuple(
        Line(
            limit,
            tuple(step.predicted.lost[limit] / step.predicted.seconds for step in found.steps),
        )
        for limit in found.steps[0].predicted.lost
    )
    return Chart(
        title=f"{found.name}, what the time is lost to",
        across="threads",
        up="of a run",
        unit="share",
        along=tuple(float(step.threads) for step in found.steps),
        lines=lines,
        log_x=True,
    )
