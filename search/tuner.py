"""Local search: measure the schemes of every workload, the promising ones of all workloads first.

Every measurement is in the database before the next one starts to count, so a search may be stopped
at any moment and taken up again: what is known is never measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from neocpu.schedules.scheme import Scheme
from neocpu.schedules.target import CpuTarget
from neocpu.search.measure import Measurement, Measurer, Request
from neocpu.search.strategies import Strategy
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey, Workload
from neocpu.tuning_db.store import Store

# Candidates of every workload in the first round; each further round takes twice as many.
FIRST_ROUND = 4


@dataclass(frozen=True, slots=True)
class TuningTask:
    """A workload, and how many times the network runs it."""

    workload: Workload
    count: int = 1


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop. A limit of None is no limit; a batch that was begun is finished."""

    seconds: float | None = None
    trials: int | None = None

    def spent(self, seconds: float, trials: int) -> bool:
        """Whether either limit is reached."""
        limits = ((self.seconds, seconds), (self.trials, trials))
        return any(limit is not None and used >= limit for limit, used in limits)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What the tuner knows of the templates.

    Attributes
    ----------
    schemes : callable
        Workload to its legal schemes.
    estimate : callable
        Workload and scheme to analytic seconds, at the thread count being tuned for.
    template_version : callable
        Template name to version, for the records.
    """

    schemes: Callable[[Workload], Sequence[Scheme]]
    estimate: Callable[[Workload, Scheme], float]
    template_version: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """State after a measurement: trials done of those planned, and the workload's best so far."""

    trials: int
    total: int
    failed: int
    seconds: float
    workload: Workload
    best: float


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What is known of one workload after tuning; ``best`` is None if no scheme worked.

    ``measured`` schemes were run now, of which ``failed`` did not work; ``reused`` were known
    before; ``left`` were not reached within the budget.
    """

    task: TuningTask
    best: Record | None
    measured: int
    reused: int
    failed: int
    left: int


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The outcome of `tune`, one entry per distinct workload, in the order of the tasks."""

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
        """Schemes the budget did not reach."""
        return sum(task.left for task in self.tasks)


@dataclass(slots=True)
class _State:
    """A workload being tuned."""

    task: TuningTask
    waiting: dict[Scheme, None]
    known: dict[Scheme, Record]
    reused: int
    measured: int = 0
    failed: int = 0

    @property
    def best(self) -> float:
        return min((record.result.best for record in self.known.values()), default=math.inf)


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
    """Measure the schemes of ``tasks`` that ``store`` does not know yet, within ``budget``.

    Parameters
    ----------
    tasks : sequence of TuningTask
        Equal workloads are merged.
    store : Store
        Opened for writing; gets every measurement, failed ones too, as soon as it is made.
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
    tuning = _Tuning(target, threads, store, space, now)
    tuning.add(tasks)
    start = clock()
    trials = 0
    for requests in tuning.rounds(strategy, measurer.batch):
        if budget.spent(clock() - start, trials):
            break
        if trials == 0:
            store.ensure_writable()
        left = None if budget.trials is None else budget.trials - trials
        for measurement in measurer.measure(requests[:left]):
            state = tuning.keep(measurement)
            trials += 1
            on_progress(tuning.progress(state, trials, budget, clock() - start))
    return tuning.report(clock() - start)


class _Tuning:
    """The workloads' states, and what turns measurements into records."""

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        store: Store,
        space: SearchSpace,
        now: Callable[[], datetime],
    ) -> None:
        self._target = target
        self._threads = threads
        self._store = store
        self._space = space
        self._now = now
        self._states: dict[Workload, _State] = {}
        self._environments: dict[str, Environment] = {}

    def add(self, tasks: Sequence[TuningTask]) -> None:
        """Look up what is known of ``tasks``; merge equal workloads."""
        counts: dict[Workload, int] = {}
        for task in tasks:
            counts[task.workload] = counts.get(task.workload, 0) + task.count
        for workload, count in counts.items():
            schemes = self._space.schemes(workload)
            results = self._store.results(workload, self._target, self._threads)
            known = {scheme: results[scheme] for scheme in schemes if scheme in results}
            waiting = [scheme for scheme in schemes if scheme not in known]
            waiting.sort(key=lambda scheme: self._space.estimate(workload, scheme))
            self._states[workload] = _State(
                TuningTask(workload, count), dict.fromkeys(waiting), known, len(known)
            )

    def rounds(self, strategy: Strategy, batch: int) -> Iterator[list[Request]]:
        """Yield what to measure next, at most ``batch`` at a time.

        Ends when nothing is left or the strategy wants no more.
        """
        count = FIRST_ROUND
        while True:
            requests: list[Request] = []
            for state in sorted(self._states.values(), key=self._stake, reverse=True):
                workload = state.task.workload
                picked = strategy.propose(workload, tuple(state.waiting), state.known, count)
                requests += [Request(workload, scheme) for scheme in picked]
            if not requests:
                return
            for at in range(0, len(requests), batch):
                yield requests[at : at + batch]
            count *= 2

    def keep(self, measurement: Measurement) -> _State:
        """Put a measurement into the database."""
        request = measurement.request
        if measurement.error is None:
            measurement = Measurement.checked(request, measurement.seconds)
        template = request.scheme.template
        if template not in self._environments:
            version = self._space.template_version(template)
            self._environments[template] = Environment.current(version)
        record = Record(
            request.workload,
            TargetKey.of(self._target, self._threads),
            request.scheme,
            Result(measurement.seconds, measurement.error),
            self._environments[template],
            self._now().isoformat(timespec="seconds"),
        )
        self._store.append([record])
        state = self._states[request.workload]
        del state.waiting[request.scheme]
        state.known[request.scheme] = record
        state.measured += 1
        state.failed += measurement.error is not None
        return state

    def progress(self, state: _State, trials: int, budget: Budget, elapsed: float) -> TuneProgress:
        """Describe where the search stands after a measurement of ``state``."""
        total = trials + sum(len(s.waiting) for s in self._states.values())
        if budget.trials is not None:
            total = min(total, budget.trials)
        failed = sum(s.failed for s in self._states.values())
        return TuneProgress(trials, total, failed, elapsed, state.task.workload, state.best)

    def report(self, elapsed: float) -> TuneReport:
        """Describe the outcome."""
        tasks = tuple(
            TaskReport(
                state.task,
                self._store.best(state.task.workload, self._target, self._threads),
                state.measured,
                state.reused,
                state.failed,
                len(state.waiting),
            )
            for state in self._states.values()
        )
        return TuneReport(tasks, elapsed)

    def _stake(self, state: _State) -> float:
        """Seconds the network spends in this workload, as far as is known."""
        workload = state.task.workload
        seconds = state.best
        if math.isinf(seconds) and state.waiting:
            seconds = self._space.estimate(workload, next(iter(state.waiting)))
        return state.task.count * seconds
