"""The state of each layer of a tuning run, for people who watch it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from neocpu.search.tuning_state import TaskState
from neocpu.tuning_db.record import Workload


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
    """Return the seconds of a task's choice before the run, to compare with its choice now.

    They are measured; or, because estimates and measurements do not compare, they are the estimate
    times the median ratio of measurements to estimates of this workload.
    """
    first = task.first
    assert first is not None
    record = task.records.get(first)
    if record is not None and record.result.error is None:
        return record.result.best
    ratios = [
        record.result.best / task.estimates[scheme]
        for scheme, record in task.records.items()
        if record.result.error is None
    ]
    return task.estimates[first] * (statistics.median(ratios) if ratios else 1.0)


class LayerBoard:
    """The present state of a run's layers, without those that have no legal scheme."""

    def __init__(self, tasks: Iterable[TaskState]) -> None:
        self._layers = {t.task.workload: _progress(t) for t in tasks if t.first is not None}

    def update(self, task: TaskState) -> None:
        """Update the state of one layer."""
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
