"""The end of a tuning run: check that winners are the fastest, and that their answers are right.

A winner is compared again with the schemes that it did not beat by more than the noise. They take
turns, so that a burst of other processes' work meets all of them alike. The same is done with a
winner that is too good to be true, and with one that replaces an earlier run's winner, because
memory may have been slower on that day. The only scheme of a workload has no rival, but is timed
again too, because a burst may have met all its repeats. Then each convolution's winner computes
once on random data and is compared with the reference. One that errs is recorded as failed, and the
next best is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.measure import Measurer, Request
from neocpu.search.tuning_state import TaskState, TuningState
from neocpu.tuning_db.record import Record, Result

# Comparisons of one workload, and the repeats each gives to every contender.
TURNS, ROUNDS = 2, 4
# Contenders of a winner that are compared with it: each must be built again.
CONTENDERS = 3
# The spread of few repeats says little, so noise has a lower bound. It also has an upper bound,
# because one bad repeat of a winner must not turn far slower schemes into contenders.
LEAST_NOISE, MOST_NOISE = 0.005, 0.05
# A winner is suspicious if its time is below this share of what its estimate and its workload's
# measurements suggest, or if its spread is wider than this.
TOO_FAST, TOO_WIDE = 0.6, 0.10


def noise(result: Result) -> float:
    """Return the relative spread of a result's repeats: the median's distance from the best."""
    return result.median / result.best - 1.0


def doubt(result: Result) -> float:
    """Return how far off the best repeat may be, relative: the noise, less with more repeats."""
    spread = min(max(noise(result), LEAST_NOISE), MOST_NOISE)
    return spread / math.sqrt(len(result.seconds) / 2)


def confirm(
    state: TuningState, measurer: Measurer, left: Callable[[], float], before_checks: float
) -> Iterator[tuple[str, TaskState]]:
    """Compare and check the winners of workloads measured in this run, the costly ones' first.

    Yields what was done, ``compare`` or ``check``, and with which workload, after each measurement.
    Nothing is begun once the seconds ``left`` are spent. Comparing leaves ``before_checks`` of them
    for checking.
    """
    for turn in range(TURNS):
        each = (_contenders(task, with_earlier=turn == 0) for task in _by_stake(state))
        groups = [group for group in each if group]
        for batch in _batches(groups, measurer.batch):
            if left() <= before_checks:
                break
            for measurement in measurer.compare(batch, ROUNDS):
                yield "compare", state.keep_again(measurement)
    while left() > 0 and (unchecked := _unchecked(state)):
        for measurement in measurer.check(unchecked):
            yield "check", state.keep_check(measurement)
            if left() <= 0:
                break


def _batches(groups: Iterable[Sequence[Request]], size: int) -> list[list[Request]]:
    batches: list[list[Request]] = []
    for group in groups:
        if not batches or len(batches[-1]) + len(group) > size:
            batches.append([])
        batches[-1] += group
    return batches


def _by_stake(state: TuningState) -> list[TaskState]:
    """Return the workloads measured in this run, those that cost the network most first."""
    fresh = [task for task in state.tasks.values() if task.fresh]
    return sorted(fresh, key=lambda task: task.view().stake, reverse=True)


def _unchecked(state: TuningState) -> list[Request]:
    """Return the winners to check; one of an earlier run too, which may have been interrupted."""
    winners = ((task, task.best) for task in _by_stake(state))
    return [
        Request(best.workload, best.scheme)
        for task, best in winners
        if best is not None
        and isinstance(best.workload, Conv2dWorkload)
        and best.scheme not in task.checked
    ]


def _contenders(task: TaskState, *, with_earlier: bool) -> list[Request]:
    """Return what to time again: the winner and those that may be faster, if there are any. The
    best that an earlier run found is one of them ``with_earlier``, if a new one takes its place.
    """
    usable = (record for record in task.records.values() if record.result.error is None)
    every = sorted(usable, key=lambda record: record.result.best)
    ranked = every[: CONTENDERS + 1]
    if task.fresh.isdisjoint(record.scheme for record in ranked):
        return []
    winner, *others = ranked
    if len(task.estimates) == 1:
        return [Request(winner.workload, winner.scheme)]
    margin = {record.scheme: doubt(record.result) for record in ranked}
    close = [
        other
        for other in others
        if other.result.best / winner.result.best - 1
        <= max(margin[winner.scheme], margin[other.scheme])
    ]
    if not close and _is_suspicious(task, winner):
        close = others[:1]
    if with_earlier and winner.scheme in task.fresh:
        before = next((r for r in every if r.scheme not in task.fresh), None)
        close += [before] if before is not None and before not in close else []
    return [Request(r.workload, r.scheme) for r in (winner, *close)] if close else []


def _is_suspicious(task: TaskState, winner: Record) -> bool:
    """Whether a winner's repeats disagree, or it is far faster than its estimate makes expect."""
    expected = task.expected(winner.scheme)
    return noise(winner.result) > TOO_WIDE or winner.result.best < TOO_FAST * expected
