"""The gain of tuning, in at most five lines, and hints at large weights and at bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from neocpu.foundation.console.terminal import print_fields
from neocpu.foundation.units import duration, plural, size

if TYPE_CHECKING:
    from neocpu.plan.plan import Plan
    from neocpu.search.tuner import TaskReport, TuneReport

NAMED: Final = 3  # number of layers that are named as having gained most
LARGE: Final = 2.0  # ratio of packed weights to the model's from which a hint is given
FASTER: Final = 1.2  # Speed-up by bfloat16 from which a hint is given


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGain:
    """The gain of a layer: its time before and now, and how often a network runs it."""

    workload: str
    count: int
    before_us: float
    now_us: float

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        before, now = duration(self.before_us / 1e6), duration(self.now_us / 1e6)
        return f"{self.workload}{times} {before} to {now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSummary:
    """The measurements of a run, and what they changed."""

    seconds: float  # time of the run
    measured: int  # number of schemes
    reused: int  # schemes known from records
    failed: int
    left: int  # schemes left to estimates
    checked: int  # number of winners that were compared with the reference
    layers: int
    layers_known: int  # from records
    layers_compared: int  # with the scheme chosen before
    before_us: float  # time of the compared layers as chosen before
    now_us: float
    gain_left: float | None  # share of a network's time, if it was estimated
    gained_most: tuple[LayerGain, ...]  # layers that gained most

    @classmethod
    def of(cls, tuned: TuneReport) -> TuningSummary:
        compared = [task for task in tuned.tasks if task.measured and task.before is not None]
        gains = sorted(compared, key=_gained, reverse=True)
        return cls(
            seconds=tuned.seconds,
            measured=tuned.measured,
            reused=tuned.reused,
            failed=tuned.failed,
            left=tuned.left,
            checked=sum(task.checked for task in tuned.tasks),
            layers=len(tuned.tasks),
            layers_known=sum(task.reused > 0 for task in tuned.tasks),
            layers_compared=len(compared),
            before_us=sum(task.task.count * (task.before or 0.0) for task in compared) * 1e6,
            now_us=sum(task.task.count * _now(task) for task in compared) * 1e6,
            gain_left=tuned.gain_left,
            gained_most=tuple(_gain(task) for task in gains[:NAMED] if _gained(task) > 0),
        )


def _now(task: TaskReport) -> float:
    return 0.0 if task.best is None else task.best.result.best


def _gained(task: TaskReport) -> float:
    return task.task.count * ((task.before or 0.0) - _now(task))


def _gain(task: TaskReport) -> LayerGain:
    return LayerGain(
        workload=str(task.task.workload),
        count=task.task.count,
        before_us=(task.before or 0.0) * 1e6,
        now_us=_now(task) * 1e6,
    )


def show_summary(tuning: TuningSummary, database: str) -> None:
    left = tuning.gain_left
    gain = "not estimated" if left is None else f"about {left:.1%} of a network's time"
    fields = [("measured", _measured(tuning)), ("left to gain", gain)]
    if tuning.measured:
        most = "; ".join(map(str, tuning.gained_most))
        kept = f"{plural(tuning.measured, 'measurement')} kept in {database}"
        checked = f"{plural(tuning.checked, 'winner')} checked against the reference"
        fields[1:1] = [("layers", _changed(tuning)), ("gained most", most or "none gained")]
        fields.append(("kept", f"{kept}; {checked}"))
    print_fields(fields)


def _measured(tuning: TuningSummary) -> str:
    """Return ``nothing; known from records: 1232 schemes (40 of 40 layers); …``."""
    now = f"{plural(tuning.measured, 'scheme')} in {duration(tuning.seconds)}"
    return (
        f"{f'{now}, {tuning.failed} failed' if tuning.measured else 'nothing'}; "
        f"known from records: {plural(tuning.reused, 'scheme')} "
        f"({tuning.layers_known} of {plural(tuning.layers, 'layer')}); "
        f"{tuning.left} left to their estimates"
    )


def _changed(tuning: TuningSummary) -> str:
    before, now = tuning.before_us, tuning.now_us
    if not tuning.layers_compared or now <= 0:
        return f"none of {tuning.layers} was measured"
    return (
        f"{tuning.layers_compared} of {tuning.layers} measured: {duration(before / 1e6)} as chosen "
        f"before, {duration(now / 1e6)} now, {before / now:.2f} times as fast"
    )


def weights_hint(plan: Plan) -> str | None:
    """Return advice on weights that Winograd's transforms made large; None if they are not."""
    given, packed = plan.weights.given_bytes, plan.weights.packed_bytes
    count = sum(op.scheme is not None and "winograd" in op.scheme.template for op in plan.ops)
    if plan.weights.limit_bytes is not None or not count or packed < LARGE * given:
        return None
    return (
        f"weights are {packed / given:.1f} times the model's, because Winograd stores them "
        f"transformed ({plural(count, 'convolution')}); --max-weights "
        f"{_round_size(LARGE * given)} would take the fastest plan of at most twice the model's"
    )


def bfloat16_hint(plan: Plan) -> str | None:
    """Return bfloat16's gain; None if small, outputs are not checked, or a promise refuses it."""
    predicted, saves = plan.predicted_us, plan.bfloat16_saves_us
    factor = predicted / (predicted - saves) if saves < predicted else 1.0
    if factor < FASTER or plan.unchecked or plan.accuracy.name != "default":
        return None
    return (
        f"about {factor:.1f} times as fast with --max-error 1e-2, which lets layers compute in "
        "bfloat16 as far as outputs err no more than that, norm-wise"
    )


def _round_size(count: float) -> str:
    return size(round(count)).replace(" ", "").upper()
