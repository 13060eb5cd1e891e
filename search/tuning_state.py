"""A tuning run's knowledge: its workloads, their measurements, and the records made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measure import Measurement
from neocpu.search.strategies import WorkloadState
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey, Workload
from neocpu.tuning_db.store import Store

# A repeat this much faster than every other one was a fault of the clock. If two agree, the slower
# ones only show that other processes were busy.
FAULTY = 0.6


@dataclass(frozen=True, slots=True)
class TuningTask:
    """A workload, and how many times each network that is tuned runs it."""

    workload: Workload
    counts: tuple[int, ...] = (1,)

    @property
    def count(self) -> int:
        """The number of times that all networks run it."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The tuner's view of the templates."""

    schemes: Callable[[Workload], Sequence[Scheme]]  # returns a workload's legal schemes
    # Returns the analytic seconds of a workload and scheme, at the thread count of the run.
    estimate: Callable[[Workload, Scheme], float]
    # Returns a template's version by its name, for the records.
    template_version: Callable[[str], int]
    # Returns the scheme that a relative of the CPU has found to be the fastest of a workload, for
    # as long as none is measured here; None if there is none.
    borrowed: Callable[[Workload], Scheme | None] = lambda workload: None


@dataclass(slots=True, kw_only=True)
class TaskState:
    """A workload being tuned."""

    task: TuningTask
    estimates: dict[Scheme, float]  # analytic seconds of every legal scheme, best first
    waiting: dict[Scheme, None]  # legal schemes not measured yet, best estimate first
    records: dict[Scheme, Record]  # legal schemes that were measured, failed ones too
    reused: int
    # A compilation's choice before this run; None if there is no legal scheme.
    first: Scheme | None = None
    failed: int = 0
    # `fresh`, `checked`: schemes measured in this run, and compared with the reference.
    fresh: set[Scheme] = field(default_factory=set)
    checked: set[Scheme] = field(default_factory=set)

    @property
    def best(self) -> Record | None:
        usable = (record for record in self.records.values() if record.result.error is None)
        return min(usable, key=lambda record: record.result.best, default=None)

    @property
    def chosen(self) -> Scheme | None:
        """A compilation's choice now: the fastest measured, else the best estimate."""
        best = self.best
        return next(iter(self.waiting), None) if best is None else best.scheme

    def expected(self, scheme: Scheme) -> float:
        """Return a scheme's estimate, times the median ratio of measurements to estimates."""
        ratios = [
            record.result.best / self.estimates[measured]
            for measured, record in self.records.items()
            if record.result.error is None
        ]
        return self.estimates[scheme] * (statistics.median(ratios) if ratios else 1.0)

    def view(self) -> WorkloadState:
        return WorkloadState(
            self.task.workload,
            self.task.counts,
            tuple(self.waiting),
            MappingProxyType(self.records),
            MappingProxyType(self.estimates),
        )


class TuningState:
    """A run's workloads, one a task, whose measurements become records; `now` is for their time."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        *,
        target: CpuTarget,
        threads: int,
        store: Store,
        space: SearchSpace,
        now: Callable[[], datetime],
    ) -> None:
        self._key = TargetKey.of(target, threads)
        self._store = store
        self._space = space
        self._now = now
        self._environments: dict[str, Environment] = {}
        self.tasks: dict[Workload, TaskState] = {
            task.workload: self._look_up(task, target, threads) for task in tasks
        }

    def _look_up(self, task: TuningTask, target: CpuTarget, threads: int) -> TaskState:
        workload = task.workload
        costs = {s: self._space.estimate(workload, s) for s in self._space.schemes(workload)}
        estimates = {scheme: costs[scheme] for scheme in sorted(costs, key=costs.__getitem__)}
        results = self._store.results(workload, target, threads)
        records = {scheme: results[scheme] for scheme in estimates if scheme in results}
        waiting = dict.fromkeys(scheme for scheme in estimates if scheme not in records)
        state = TaskState(
            task=task, estimates=estimates, waiting=waiting, records=records, reused=len(records)
        )
        state.first = state.chosen
        if state.best is None and (borrowed := self._space.borrowed(workload)) in estimates:
            state.first = borrowed
        return state

    def views(self) -> tuple[WorkloadState, ...]:
        return tuple(task.view() for task in self.tasks.values())

    def keep(self, measurement: Measurement) -> TaskState:
        """Put a first measurement of a scheme into the database."""
        request = measurement.request
        if measurement.error is None:
            measurement = Measurement.checked(request, measurement.seconds)
        task = self.tasks[request.workload]
        self._record(task, request.scheme, Result(measurement.seconds, measurement.error))
        del task.waiting[request.scheme]
        task.fresh.add(request.scheme)
        task.failed += measurement.error is not None
        return task

    def keep_again(self, measurement: Measurement) -> TaskState:
        """Add the seconds of a scheme that was measured again to its record, or why it failed."""
        request = measurement.request
        task = self.tasks[request.workload]
        if measurement.error is None:
            measurement = Measurement.checked(request, measurement.seconds)
        if measurement.error is not None:
            return self._reject(task, measurement)
        known = task.records[request.scheme].result.seconds
        self._record(task, request.scheme, Result(_credible(known + measurement.seconds)))
        return task

    def keep_check(self, measurement: Measurement) -> TaskState:
        """Note that a scheme's answer was right; if it was wrong, record it as failed."""
        task = self.tasks[measurement.request.workload]
        if measurement.error is not None:
            return self._reject(task, measurement)
        task.checked.add(measurement.request.scheme)
        return task

    def _reject(self, task: TaskState, measurement: Measurement) -> TaskState:
        scheme = measurement.request.scheme
        self._record(task, scheme, Result((), measurement.error))
        task.failed += scheme in task.fresh
        return task

    def _record(self, task: TaskState, scheme: Scheme, result: Result) -> None:
        version = self._space.template_version(scheme.template)
        if scheme.template not in self._environments:
            self._environments[scheme.template] = Environment.current(version)
        record = Record(
            workload=task.task.workload,
            target=self._key,
            scheme=scheme,
            result=result,
            env=self._environments[scheme.template],
            time=self._now().isoformat(timespec="seconds"),
        )
        self._store.append([record])
        task.records[scheme] = record


def _credible(seconds: tuple[float, ...]) -> tuple[float, ...]:
    """Leave out the fastest of two or more repeats if none of the others comes near it."""
    fastest, second, *_ = sorted(seconds)
    if fastest >= FAULTY * second:
        return seconds
    return tuple(each for each in seconds if each != fastest)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProgress:
    """One workload of a run."""

    workload: Workload
    count: int  # the number of times that all networks run it
    # Seconds of the scheme that a compilation would have chosen before; see `seconds_before`.
    before: float
    now: float | None  # seconds of the fastest scheme that was measured; None if none has worked
    # `tried`, `left`: schemes that are measured, and those that are not.
    tried: int
    left: int

    @property
    def cost(self) -> float:
        """Seconds that the networks spend in it, as far as is known."""
        return self.count * (self.before if self.now is None else self.now)


def seconds_before(task: TaskState) -> float:
    """Return the seconds of a task's choice before the run, measured or else as other measurements
    make expect: estimates do not compare with these.
    """
    first = task.first
    assert first is not None
    record = task.records.get(first)
    if record is not None and record.result.error is None:
        return record.result.best
    return task.expected(first)


class LayerBoard:
    """The present state of a run's layers, without those that have no legal scheme."""

    def __init__(self, tasks: Iterable[TaskState]) -> None:
        self._layers = {t.task.workload: _progress(t) for t in tasks if t.first is not None}

    def update(self, task: TaskState) -> None:
        self._layers[task.task.workload] = _progress(task)

    def costliest_first(self) -> tuple[LayerProgress, ...]:
        """Return all layers by the time that the networks spend in them, longest first."""
        return tuple(sorted(self._layers.values(), key=lambda layer: layer.cost, reverse=True))


def _progress(task: TaskState) -> LayerProgress:
    best = task.best
    return LayerProgress(
        workload=task.task.workload,
        count=task.task.count,
        before=seconds_before(task),
        now=None if best is None else best.result.best,
        tried=len(task.records),
        left=len(task.waiting),
    )
