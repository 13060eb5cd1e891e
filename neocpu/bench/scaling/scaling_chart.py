"""Speed over the number of threads as a chart: the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neocpu.bench.results.chart import COLORS, MARKERS, STYLE, draw_legend, save
from neocpu.bench.scaling.model_scaling import ScalingPrediction


def draw_scaling(path: Path, found: Sequence[ScalingPrediction], note: str) -> None:
    """Draw speed-ups of models: what is predicted dashed, what was measured as marks."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(6.0, 4.2), layout="constrained")
        axes = figure.add_subplot()
        counts = sorted({step.threads for one in found for step in one.steps})
        axes.plot(counts, counts, color="0.6", linewidth=0.8, label="every thread in full")
        for number, one in enumerate(found):
            color = COLORS[number % len(COLORS)]
            threads = [step.threads for step in one.steps]
            speeds = [one.speedup(step) for step in one.steps]
            axes.plot(threads, speeds, "--", color=color, label=f"{one.name}, predicted")
            measured = {
                step.threads: one.alone / step.measured for step in one.steps if step.measured
            }
            if measured:
                axes.plot(
                    list(measured),
                    list(measured.values()),
                    MARKERS[number % len(MARKERS)],
                    color=color,
                    label=f"{one.name}, measured",
                )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
        axes.set_xticks(counts)
        axes.set_xlabel("threads")
        axes.set_ylabel("times as fast as one thread")
        axes.grid(visible=True, linewidth=0.4, color="0.85")
        draw_legend(figure, axes, 2)
        save(figure, path, note)
