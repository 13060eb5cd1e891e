"""Speed over the number of threads, for a page: predicted, and measured on the cores there are."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.bench.scaling.model_scaling import ScalingPrediction
from neocpu.plan.result_pages.parts import Chart, Line, Part, chosen


def pictures(found: Sequence[ScalingPrediction]) -> tuple[Part, ...]:
    """Return what is drawn of models: speeds, then what each number of threads loses time to."""
    return (
        *chosen([_speeds(one) for one in found], "model"),
        *chosen([_losses(one) for one in found], "model"),
    )


def _speeds(found: ScalingPrediction) -> Chart:
    counts = tuple(float(step.threads) for step in found.steps)
    measured = tuple(
        None if step.measured is None else found.alone / step.measured for step in found.steps
    )
    lines = (
        Line("every thread in full", counts, "limit"),
        Line("predicted", tuple(found.speedup(step) for step in found.steps)),
        *([Line("measured", measured, "dots")] if any(measured) else []),
    )
    title = f"{found.name} on a {found.request.machine.cpu}"
    return Chart(
        title=title,
        across="threads",
        up="as fast as one",
        unit="times",
        along=counts,
        lines=lines,
        log_x=True,
        log_y=True,
    )


def _losses(found: ScalingPrediction) -> Chart:
    limits = [*found.steps[0].predicted.lost]
    lines = tuple(
        Line(
            limit,
            tuple(step.predicted.lost[limit] / step.predicted.seconds for step in found.steps),
        )
        for limit in limits
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
