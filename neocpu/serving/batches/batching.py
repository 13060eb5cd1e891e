"""Gather requests into batches that are computed jointly, and divide the results among them.

A request has one or more rows of the model's first axis. Each run takes as many as its plan has,
first come first served, when it begins; it may leave some rows of a request to the next run. Where
requests choose other extents too, a run takes those with the extents of the first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np

from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import duration
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.composed.batch_plans import TABLE, FastestRuns
from neocpu.serving.batches.batched_plans import WORTH, worthwhile
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.metrics import ModelMetrics
from neocpu.serving.sized_requests import SizedRequests
from neocpu.serving.workers import Worker, least_busy

Tensors: TypeAlias = Mapping[str, AnyArray]
Later: TypeAlias = Callable[[float, Callable[[], object]], object]
"""Calls a function after so many seconds, such as ``loop.call_later``."""

DELAY: Final = 0.002
"""The default delay, in seconds."""
MOST_DELAY: Final = 10.0
"""The longest delay, in seconds. Clients give up, and servers must end, within some tens."""


class Runs(Protocol):
    """The part of a `neocpu.Module` that batches need."""

    def run(self, inputs: Tensors) -> dict[str, AnyArray]:
        """Return the outputs by name."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The options for gathering requests."""

    most: int
    delay: float


def check_delay(seconds: float, name: str) -> float:
    """Check and return the seconds that requests wait for others."""
    if seconds > MOST_DELAY:
        raise UsageError(
            f"{name} {duration(seconds)}: so long no client waits for others; give at most "
            f"{duration(MOST_DELAY)}"
        )
    return seconds


class _Request:
    """A request, with rows that wait, are computed, or are done."""

    __slots__ = ("answer", "came", "inputs", "number", "outputs", "pending", "row", "rows", "taken")

    def __init__(self, number: int, inputs: Tensors) -> None:
        self.number = number
        self.inputs = inputs
        self.row = [array.shape[1:] for array in inputs.values()]
        self.rows = self.pending = len(next(iter(inputs.values())))  # pending: not computed yet
        self.taken = 0  # rows that runs have taken
        self.came = time.perf_counter()
        self.answer: Future[dict[str, AnyArray]] = Future()
        self.outputs: dict[str, AnyArray] = {}  # so far, if several runs compute it

    def begin(self) -> bool:
        """Mark its computation as begun; return False if nobody waits for the answer."""
        if self.taken:
            return not self.answer.done()
        return self.answer.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a request that a run computes."""

    request: _Request
    start: int  # the first row in the request
    count: int
    place: int  # the first row in the batch

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.count)

    @property
    def places(self) -> slice:
        return slice(self.place, self.place + self.count)


class Batcher:
    """The rows that wait for one model, and its runs on all workers. Any thread may use it.

    `modules`: one for each worker, which takes batches with the rows of any plan, independent of
    each other. `workers` may be shared with other models, whose calls take turns with these runs.
    `seconds`: those of a run, by the rows of its plan. `sized`: where requests choose extents too,
    and maybe runs have as many rows as there are.
    """

    def __init__(
        self,
        modules: Sequence[Runs],
        workers: Sequence[Worker],
        seconds: Mapping[int, float],
        batching: Batching,
        metrics: ModelMetrics,
        sized: SizedRequests | None = None,
    ) -> None:
        self._sized = sized
        self._size = None if sized is None else sized.size
        self._modules, self._workers, self._metrics = modules, workers, metrics
        self._seconds = seconds = worthwhile(seconds)
        self._most, self._delay = batching.most, batching.delay
        self._runs = FastestRuns(seconds)
        # Rows beyond every plan and beyond the table of compositions are as fast as these.
        most = min(batching.most, max(TABLE, *seconds) + 1)
        best = max(self._rate(rows) for rows in range(1, most + 1))
        self._waited_for = best / WORTH
        if self._rate(1) >= self._waited_for:
            self._delay = 0.0  # a row begins at once, and no timer is needed
        self._waiting: deque[_Request] = deque()
        self._count = 0
        self._due = -1  # the delay of this request, and of all before it, is over
        self._next: Future[None] | None = None  # a run that is queued and has taken no rows yet
        self._next_worker = 0  # the worker of that run
        self._closing = False
        # Reentrant, because a future that is cancelled calls back.
        self._lock = threading.RLock()
        self._batches: list[dict[str, AnyArray]] = [{} for _ in workers]

    def submit(self, inputs: Tensors, later: Later) -> Future[dict[str, AnyArray]]:
        """Queue a request; return the future outputs by name, or the error that its run raises.

        The inputs have the same first extent, and must not change until the answer is there. The
        future may be cancelled until a run takes some of the rows.
        """
        with self._lock:
            if self._closing:  # its run would be queued on workers that may close
                raise UsageError("the model is closed")
            request = _Request(self._count, inputs)
            self._count += 1
            self._waiting.append(request)
            # By number: an answer that refers to its request would be a cycle and keep the rows.
            request.answer.add_done_callback(partial(self._forget, request.number))
            if self._delay <= 0:
                self._due = request.number
            self._consider()
        if self._delay > 0:
            later(self._delay, partial(self._end_delay, request.number))
        return request.answer

    def close(self) -> None:
        """Take no more requests, and compute those that wait or are under way. May be repeated."""
        with self._lock:
            self._closing = True
            self._consider()
        while (run := self._next) is not None:
            run.result()  # it has queued another if it left rows
        for worker in self._workers:
            worker.wait()  # a run that has taken its rows may not have called the module yet

    def _end_delay(self, number: int) -> None:
        with self._lock:
            self._due = max(self._due, number)
            self._consider()

    def _forget(self, number: int, _: Future[dict[str, AnyArray]]) -> None:
        """Remove a request from the queue that is cancelled, or failed with some of its rows."""
        with self._lock:
            found = next((one for one in self._waiting if one.number == number), None)
            if found is not None:
                self._waiting.remove(found)

    def _rate(self, rows: int) -> float:
        size = self._runs.first(rows)
        return min(rows, size) / self._seconds[size]

    def _rows(self, workers: int = 1) -> int:
        """Return the waiting rows for each of so many workers, up to the limit of a batch."""
        waiting = sum(request.rows - request.taken for request in self._alike())
        return min(self._most, -(-waiting // workers))

    def _alike(self) -> list[_Request]:
        """Return the waiting requests whose rows have the shapes of the first one's."""
        row = self._waiting[0].row
        return [request for request in self._waiting if request.row == row]

    def _all_seconds(self, rows: int) -> float:
        return sum(self._seconds[size] for size in self._runs.all(rows))

    def _consider(self) -> None:
        """Queue a run if none is queued and rows need not wait for others any longer."""
        if self._next is not None or not self._waiting:
            return
        first = self._waiting[0]
        overdue = self._closing or first.taken or first.number <= self._due
        if overdue or self._rate(self._rows()) >= self._waited_for:
            self._queue(least_busy(self._workers))

    def _queue(self, worker: int) -> None:
        self._next = self._workers[worker].submit(partial(self._run, worker))
        self._next_worker = worker

    def _run(self, worker: int) -> None:
        began = time.perf_counter()
        with self._lock:
            self._next = None
            size, parts = self._take(began)
            self._consider()
        if not parts:
            return
        try:
            results = self._modules[worker].run(self._gathered(worker, size, parts))
        except BaseException as error:
            for part in parts:
                self._answer(part.request, error)
            return
        finally:
            _, seconds = self._workers[worker].finish(began)
            self._metrics.ran(seconds, sum(part.count for part in parts), size)
            if self._sized is not None:
                self._metrics.ran_size(seconds, self._sized.name_of(parts[0].request.inputs))
            self._take_over(worker)
        for part in parts:
            self._deliver(part, results)

    def _take_over(self, worker: int) -> None:
        """Move the queued run to a worker whose only call ends, if its own worker is busy."""
        with self._lock:
            if self._next is None or self._closing or self._workers[worker].pending > 1:
                return
            if self._workers[self._next_worker].pending > 1 and self._next.cancel():
                self._queue(worker)

    def _take(self, now: float) -> tuple[int, list[_Part]]:
        """Take rows out of the queue; return the rows of the plan to run, and the parts in it."""
        if not self._waiting:
            return 0, []
        # Workers without a call are free, and so is this one, which makes this call.
        waiting, share = self._rows(), self._rows(1 + sum(not one.pending for one in self._workers))
        if share < waiting and self._all_seconds(share) < self._all_seconds(waiting):
            self._due = self._waiting[-1].number  # the others' shares begin at once too
            size = self._runs.first(share)
        else:
            size = self._runs.first(waiting)
        most, place = min(waiting, size), 0
        parts: list[_Part] = []
        for request in self._alike():
            if place == most:
                break
            if not request.begin():
                self._waiting.remove(request)
                continue
            if not request.taken:
                self._metrics.queue.observe(now - request.came)
            count = min(most - place, request.rows - request.taken)
            parts.append(_Part(request, request.taken, count, place))
            request.taken += count
            place += count
            if request.taken == request.rows:
                self._waiting.remove(request)
        return size if self._size is None else self._size.at_least(place), parts

    def _gathered(self, worker: int, size: int, parts: Sequence[_Part]) -> Tensors:
        """Return the inputs of a run: rows of requests, then zeros in spare rows."""
        first, last = parts[0], parts[-1]
        if first.count == first.request.rows == size:
            return first.request.inputs
        gathered: dict[str, AnyArray] = {}
        for name, array in first.request.inputs.items():
            batch = self._batch(worker, name, array, size)
            for part in parts:
                batch[part.places] = part.request.inputs[name][part.rows]
            batch[last.places.stop :] = 0
            gathered[name] = batch
        return gathered

    def _batch(self, worker: int, name: str, like: AnyArray, size: int) -> AnyArray:
        """Return the array in which a worker's batches are assembled, one run at a time."""
        batches = self._batches[worker]
        known = batches.get(name)
        if known is None or len(known) < size or known.shape[1:] != like.shape[1:]:
            batches[name] = aligned_empty((size, *like.shape[1:]), like.dtype.newbyteorder("="))
        return batches[name][:size]

    def _deliver(self, part: _Part, results: Mapping[str, AnyArray]) -> None:
        """Give a request its rows of the results, and answer it if they are the last."""
        request = part.request
        outputs = {name: array[part.places] for name, array in results.items()}
        if part.count == request.rows:
            self._answer(request, outputs)
            return
        with self._lock:
            if not request.outputs:
                request.outputs = {
                    name: np.empty((request.rows, *array.shape[1:]), array.dtype)
                    for name, array in outputs.items()
                }
        # Without the lock, because the event loop may wait for it; no other run has these rows.
        for name, array in outputs.items():
            request.outputs[name][part.rows] = array
        with self._lock:
            request.pending -= part.count
            if not request.pending:
                self._answer(request, request.outputs)

    def _answer(self, request: _Request, outcome: dict[str, AnyArray] | BaseException) -> None:
        with self._lock:
            if request.answer.done():
                return
            if isinstance(outcome, BaseException):
                request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)
