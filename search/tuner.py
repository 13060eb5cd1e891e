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
from neocpu.search.tuning_state import SearchSpace, TaskState, TuningState, TuningTask
from neocpu.search.winner_check import confirm, noise
from neocpu.tuning_db.record import Record, Workload
from neocpu.tuning_db.store import Store

# Of what is reserved for the winners, for checking their answers.
CHECK_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """State after a measurement.

    Attributes
    ----------
    doing : str
        ``measure`` a scheme for the first time, or ``compare`` or ``check`` the winners.
    trials, total : int
        First measurements made, and of how many at most: a strategy may stop before.
    failed : int
        Measurements that did not work.
    seconds : float
        Since the start.
    chosen : Scheme or None
        What a compilation would choose for ``workload`` now.
    best : float
        Seconds of the fastest scheme of ``workload``; ``inf`` if none has worked.
    """

    doing: str
    trials: int
    total: int
    failed: int
    seconds: float
    workload: Workload
    chosen: Scheme | None
    best: float


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What is known of one workload after tuning.

    Attributes
    ----------
    best : Record or None
        The fastest measured scheme; None if none worked.
    estimate : tuple of Scheme and float, or None
        The best estimate, in seconds, of the schemes not measured.
    measured, failed, reused, left : int
        Schemes run now; of those, the ones that did not work; known before; not run.
    noise : float or None
        Relative spread of the best scheme's repeats.
    checked : bool
        Whether the best scheme's answer was compared with the reference now.
    """

    task: TuningTask
    best: Record | None
    estimate: tuple[Scheme, float] | None
    measured: int
    reused: int
    failed: int
    left: int
    noise: float | None
    checked: bool


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The outcome of `tune`, one entry per task, in their order, and the seconds it took."""

    tasks: tuple[TaskReport, ...]
    seconds: float

    @property
    def measured(self) -> int:
        """Schemes measured now."""
        return sum(task.measured for task in self.tasks)

    @property
    def reused(self) -> int:
        """Schemes known before."""
        return sum(task.reused for task in self.tasks)

    @property
    def failed(self) -> int:
        """Schemes measured now that did not work."""
        return sum(task.failed for task in self.tasks)

    @property
    def left(self) -> int:
        """Schemes that were not measured."""
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
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> TuneReport:
    """Measure schemes of ``tasks`` that ``store`` does not know yet, within ``budget``.

    Parameters
    ----------
    tasks : sequence of TuningTask
        No two of one workload.
    store : Store
        Opened for writing; gets every measurement, failed ones too, as soon as it is made.
    budget : Budget
        Is overrun by one measurement at most. Trials count first measurements only.
    on_progress : callable
        Called after every measurement.
    clock, now : callable
        Monotonic seconds for the budget, and the time for the records.

    Raises
    ------
    DatabaseError
        If ``store`` cannot be written; before anything is measured.
    KeyboardInterrupt
        If interrupted; what was measured is in ``store``.
    """
    pace = Pace(budget, clock)
    state = TuningState(tasks, target=target, threads=threads, store=store, space=space, now=now)
    while count := pace.next_batch(measurer.batch):
        requests = strategy.propose(state.views(), count)
        if not requests:
            break
        if pace.trials == 0:
            store.ensure_writable()
        pace.begin()
        for measurement in measurer.measure(requests):
            task = state.keep(measurement)
            pace.count()
            on_progress(_progress("measure", state, task, pace, budget))
            if pace.left <= 0:
                break
    for doing, task in confirm(state, measurer, lambda: pace.left, CHECK_SHARE * pace.reserve):
        on_progress(_progress(doing, state, task, pace, budget))
    reports = tuple(map(_report, state.tasks.values()))
    return TuneReport(reports, pace.elapsed)


def _progress(
    doing: str, state: TuningState, task: TaskState, pace: Pace, budget: Budget
) -> TuneProgress:
    total = pace.trials + sum(len(other.waiting) for other in state.tasks.values())
    if budget.trials is not None:
        total = min(total, budget.trials)
    failed = sum(other.failed for other in state.tasks.values())
    best = math.inf if task.best is None else task.best.result.best
    workload = task.task.workload
    return TuneProgress(
        doing, pace.trials, total, failed, pace.elapsed, workload, task.chosen, best
    )


def _report(task: TaskState) -> TaskReport:
    best = task.best
    waiting = next(iter(task.waiting), None)
    return TaskReport(
        task.task,
        best,
        None if waiting is None else (waiting, task.estimates[waiting]),
        measured=len(task.fresh),
        reused=task.reused,
        failed=task.failed,
        left=len(task.waiting),
        noise=None if best is None else noise(best.result),
        checked=best is not None and best.scheme in task.checked,
    )
