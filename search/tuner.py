"""Local search: measure the promising schemes of all workloads, then make sure of the winners.

Every measurement is in the database before the next one starts to count, so a search may be stopped
at any moment and taken up again: what is known is never measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.budget import Budget, Pace
from neocpu.search.measuring.measure import Measurer
from neocpu.search.strategies import Strategy
from neocpu.search.tuning_state import (
    LayerBoard,
    LayerProgress,
    SearchSpace,
    TaskState,
    TuningState,
    TuningTask,
    seconds_before,
)
from neocpu.search.winner_check import confirm, noise
from neocpu.tuning_db.record import Record, Result, Workload
from neocpu.tuning_db.store import Store

# Of what is reserved for the winners, for checking their answers.
CHECK_SHARE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneProgress:
    """State after a measurement."""

    doing: str  # ``measure`` a scheme for the first time, or ``compare`` or ``check`` the winners
    # `trials`, `total`: first measurements made, and their largest number: a strategy may stop
    # before.
    trials: int
    total: int
    failed: int
    seconds: float  # seconds since the start
    workload: Workload
    chosen: Scheme | None  # a compilation's choice for ``workload`` now
    best: float  # seconds of the fastest scheme of ``workload``; ``inf`` if none has worked
    # The state of all workloads, those that the networks spend most in first.
    layers: tuple[LayerProgress, ...] = ()
    # The strategy's expected gain, as a share of a network's time; None if it has none.
    gain_left: float | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Work of a run in which nothing is measured for a while."""

    doing: str  # ``estimate`` workloads, ``choose`` among schemes, or ``build`` some
    count: int  # the number of workloads or schemes
    # `trials`, `total`: the fields of `TuneProgress`; 0 in total before the estimates.
    trials: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A first measurement of a scheme."""

    seconds: float  # seconds from the start to the measurement
    workload: Workload
    scheme: Scheme
    result: Result  # result of that measurement: winners are timed again


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The knowledge of one workload after tuning."""

    task: TuningTask
    best: Record | None  # fastest measured scheme; None if none worked
    # The best estimate, in seconds, of the schemes not measured.
    estimate: tuple[Scheme, float] | None
    # Schemes: `measured` now, `failed` among these, `reused` from records, `left` unmeasured.
    measured: int
    reused: int
    failed: int
    left: int
    noise: float | None  # relative spread of the best scheme's repeats
    checked: bool  # whether the best scheme's answer was compared with the reference now
    # Seconds of the choice before, if any worked; see `tuning_state.seconds_before`.
    before: float | None


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The outcome of `tune`: an entry per task, seconds, ``gain_left`` of `TuneProgress`, and the
    ``trials``, all first measurements, in turn.
    """

    tasks: tuple[TaskReport, ...]
    seconds: float
    gain_left: float | None = None
    trials: tuple[Trial, ...] = ()

    @property
    def measured(self) -> int:
        return sum(task.measured for task in self.tasks)

    @property
    def reused(self) -> int:
        return sum(task.reused for task in self.tasks)

    @property
    def failed(self) -> int:
        return sum(task.failed for task in self.tasks)

    @property
    def left(self) -> int:
        return sum(task.left for task in self.tasks)


def tune(
    tasks: Sequence[TuningTask],
    *,
    target: CpuTarget,
    threads: int,
    store: Store,
    measurer: Measurer,
    strategy: Strategy,
    space: SearchSpace,
    budget: Budget,
    on_progress: Callable[[TuneProgress], None] = lambda progress: None,
    on_stage: Callable[[Stage], None] = lambda stage: None,
    on_interrupt: Callable[[TuneReport], None] = lambda report: None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> TuneReport:
    """Measure schemes of ``tasks`` that ``store`` does not know yet, within ``budget``. Tasks
    have distinct workloads. `store` gets every measurement, failed ones too, as soon as it is made.
    `budget` is overrun by one measurement at most; trials count first measurements only. `on_stage`
    is called before other work than measuring that takes a while, and `on_interrupt` with what was
    tried until then, if Ctrl-C ends the measuring. Raises DatabaseError before anything is measured
    if ``store`` cannot be written.
    """
    pace = Pace(budget, clock)
    on_stage(Stage("estimate", len(tasks)))
    state = TuningState(tasks, target=target, threads=threads, store=store, space=space, now=now)
    board = LayerBoard(state.tasks.values())
    trials: list[Trial] = []

    def report(doing: str, task: TaskState) -> None:
        board.update(task)
        on_progress(_progress(doing, state, task, pace, budget, board, strategy.gain_left))

    def outcome() -> TuneReport:
        reports = tuple(map(_report, state.tasks.values()))
        return TuneReport(reports, pace.elapsed, strategy.gain_left, tuple(trials))

    try:
        while count := pace.next_batch(measurer.batch):
            total = _total(state, pace, budget)
            if total > pace.trials:
                on_stage(Stage("choose", total - pace.trials, pace.trials, total))
            requests = strategy.propose(state.views(), count)
            if not requests:
                break
            if pace.trials == 0:
                store.ensure_writable()
            pace.begin()
            on_stage(Stage("build", len(requests), pace.trials, total))
            for measurement in measurer.measure(requests):
                task = state.keep(measurement)
                pace.count()
                request = measurement.request
                result = task.records[request.scheme].result
                trials.append(Trial(pace.elapsed, request.workload, request.scheme, result))
                report("measure", task)
                if pace.left <= 0:
                    break
        for doing, task in confirm(state, measurer, lambda: pace.left, CHECK_SHARE * pace.reserve):
            report(doing, task)
    except KeyboardInterrupt:
        on_interrupt(outcome())
        raise
    return outcome()


def _total(state: TuningState, pace: Pace, budget: Budget) -> int:
    total = pace.trials + sum(len(task.waiting) for task in state.tasks.values())
    return total if budget.trials is None else min(total, budget.trials)


def _progress(
    doing: str,
    state: TuningState,
    task: TaskState,
    pace: Pace,
    budget: Budget,
    board: LayerBoard,
    gain_left: float | None,
) -> TuneProgress:
    total = _total(state, pace, budget)
    failed = sum(other.failed for other in state.tasks.values())
    best = math.inf if task.best is None else task.best.result.best
    workload = task.task.workload
    return TuneProgress(
        doing=doing,
        trials=pace.trials,
        total=total,
        failed=failed,
        seconds=pace.elapsed,
        workload=workload,
        chosen=task.chosen,
        best=best,
        layers=board.costliest_first(),
        gain_left=gain_left,
    )


def _report(task: TaskState) -> TaskReport:
    best = task.best
    waiting = next(iter(task.waiting), None)
    return TaskReport(
        task=task.task,
        best=best,
        estimate=None if waiting is None else (waiting, task.estimates[waiting]),
        measured=len(task.fresh),
        reused=task.reused,
        failed=task.failed,
        left=len(task.waiting),
        noise=None if best is None else noise(best.result),
        checked=best is not None and best.scheme in task.checked,
        before=None if best is None else seconds_before(task),
    )
