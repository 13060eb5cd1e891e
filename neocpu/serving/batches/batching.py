"""Requests that are computed together: which, when, and on whose behalf.

A request has one or more rows of the model's first axis. Rows wait in line; each run takes as many
as its plan has, first come first served, and may take some of a request and leave the others to the
next. What a run takes is decided when it begins, so that while another is under way more come.
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
from neocpu.runtime.composed.composition import TABLE, FastestRuns
from neocpu.serving.batches.run_seconds import WORTH, worthwhile
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.lane import Lane, least_busy
from neocpu.serving.metrics import ModelMetrics

Tensors: TypeAlias = Mapping[str, AnyArray]
Later: TypeAlias = Callable[[float, Callable[[], object]], object]
"""Calls a function in so many seconds, such as ``loop.call_later``."""

DELAY: Final = 0.002
"""Seconds, unless told otherwise."""
MOST_DELAY: Final = 10.0
"""Seconds: clients give up, and servers have to end, within some tens of them."""


class Runs(Protocol):
    """The part of a `neocpu.Module` that batches need."""

    def run(self, inputs: Tensors) -> dict[str, AnyArray]:
        """Return the outputs by name."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The options for gathering requests.

    Attributes
    ----------
    most : int
        Rows of one batch, and of one request, at most.
    delay : float
        Seconds that a request may wait for others while a lane is free.
    """

    most: int
    delay: float


def check_delay(seconds: float, name: str) -> float:
    """Return how long requests are to wait for others.

    Parameters
    ----------
    name : str
        The name of the setting.

    Raises
    ------
    UsageError
        The delay is longer than `MOST_DELAY`.
    """
    if seconds > MOST_DELAY:
        raise UsageError(
            f"{name} {duration(seconds)}: so long no client waits for others; give at most "
            f"{duration(MOST_DELAY)}"
        )
    return seconds


class _Request:
    """Rows that wait, are computed, or are done.

    Attributes
    ----------
    taken, pending : int
        Rows that runs have taken, and those that none has computed yet.
    outputs : dict of str to array
        The parts of the answer so far, to a request that several runs compute.
    """

    __slots__ = ("answer", "came", "inputs", "number", "outputs", "pending", "rows", "taken")

    def __init__(self, number: int, inputs: Tensors) -> None:
        self.number = number
        self.inputs = inputs
        self.rows = self.pending = len(next(iter(inputs.values())))
        self.taken = 0
        self.came = time.perf_counter()
        self.answer: Future[dict[str, AnyArray]] = Future()
        self.outputs: dict[str, AnyArray] = {}

    def begin(self) -> bool:
        """Say that rows of it are about to be computed; False if nobody waits for them."""
        if self.taken:
            return not self.answer.done()
        return self.answer.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a request that a run computes.

    Attributes
    ----------
    start, count : int
        The first of the request's rows, and their number.
    place : int
        The row of the batch at which they begin.
    """

    request: _Request
    start: int
    count: int
    place: int

    @property
    def rows(self) -> slice:
        """Its rows in the request."""
        return slice(self.start, self.start + self.count)

    @property
    def places(self) -> slice:
        """Its rows in the batch."""
        return slice(self.place, self.place + self.count)


class Batcher:
    """The rows that wait for one model, and its runs on all lanes. For use by any thread.

    Parameters
    ----------
    modules : sequence
        One for each lane, which takes batches of as many rows as any plan has. No row of a batch
        has a part in what another's outputs are.
    lanes : sequence of Lane
        Maybe shared with other models, whose calls take turns with the runs of this one.
    seconds : mapping of int to float
        The time of a run, by the rows of its plan.
    batching : Batching
    metrics : ModelMetrics
    """

    def __init__(
        self,
        modules: Sequence[Runs],
        lanes: Sequence[Lane],
        seconds: Mapping[int, float],
        batching: Batching,
        metrics: ModelMetrics,
    ) -> None:
        self._modules, self._lanes, self._metrics = modules, lanes, metrics
        self._seconds = seconds = worthwhile(seconds)
        self._most, self._delay = batching.most, batching.delay
        self._runs = FastestRuns(seconds)
        # More rows than any plan has, and than are considered one by one, are as fast as these.
        most = min(batching.most, max(TABLE, *seconds) + 1)
        best = max(self._rate(rows) for rows in range(1, most + 1))
        self._waited_for = best / WORTH
        if self._rate(1) >= self._waited_for:
            self._delay = 0.0  # a row begins at once, and no timer is needed
        self._waiting: deque[_Request] = deque()
        self._count = 0
        self._due = -1  # the last request whose delay is over, and all before it
        self._next: Future[None] | None = None  # a run that is queued and has taken no rows yet
        self._next_lane = 0  # where
        self._closing = False
        # Again by the thread that has it: a future that is cancelled calls back.
        self._lock = threading.RLock()
        self._batches: list[dict[str, AnyArray]] = [{} for _ in lanes]

    def submit(self, inputs: Tensors, later: Later) -> Future[dict[str, AnyArray]]:
        """Put a request in line.

        Parameters
        ----------
        inputs : mapping of str to array
            All with the same first extent. They must not change until the answer is there.
        later : callable
            A function that calls another at the end of a delay.

        Returns
        -------
        concurrent.futures.Future
            The outputs by name, with as many rows, or the error that its run raises. It may be
            cancelled until a run takes some of them.

        Raises
        ------
        UsageError
            The batcher is closed.
        """
        with self._lock:
            if self._closing:  # or its run would be queued on lanes that may close
                raise UsageError("the model is closed")
            request = _Request(self._count, inputs)
            self._count += 1
            self._waiting.append(request)
            # By number: a request that its answer refers to would keep its rows until the garbage
            # collector finds the two, and memory still in the caches would not be used again.
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
        for lane in self._lanes:
            lane.wait()  # a run that has taken its rows may not have called the module yet

    def _end_delay(self, number: int) -> None:
        with self._lock:
            self._due = max(self._due, number)
            self._consider()

    def _forget(self, number: int, _: Future[dict[str, AnyArray]]) -> None:
        """Take a request out of the line that is cancelled, or failed with some of its rows."""
        with self._lock:
            found = next((one for one in self._waiting if one.number == number), None)
            if found is not None:
                self._waiting.remove(found)

    def _rate(self, rows: int) -> float:
        """Return the rows per second of the first run for so many."""
        size = self._runs.first(rows)
        return min(rows, size) / self._seconds[size]

    def _rows(self, lanes: int = 1) -> int:
        """Return how many rows wait for each of so many lanes, as far as a batch may have them."""
        waiting = sum(request.rows - request.taken for request in self._waiting)
        return min(self._most, -(-waiting // lanes))

    def _all_seconds(self, rows: int) -> float:
        """Return the seconds of the runs for so many, one after another."""
        return sum(self._seconds[size] for size in self._runs.all(rows))

    def _consider(self) -> None:
        """Queue a run, unless there is one, if it is to begin as soon as a lane is free."""
        if self._next is not None or not self._waiting:
            return
        first = self._waiting[0]
        overdue = self._closing or first.taken or first.number <= self._due
        if overdue or self._rate(self._rows()) >= self._waited_for:
            self._queue(least_busy(self._lanes))

    def _queue(self, lane: int) -> None:
        self._next, self._next_lane = self._lanes[lane].submit(partial(self._run, lane)), lane

    def _run(self, lane: int) -> None:
        """Compute of what waits as much as one run does best. Called by a lane."""
        began = time.perf_counter()
        with self._lock:
            self._next = None
            size, parts = self._take(began)
            self._consider()
        if not parts:
            return
        try:
            results = self._modules[lane].run(self._gathered(lane, size, parts))
        except BaseException as error:
            for part in parts:
                self._answer(part.request, error)
            return
        finally:
            _, seconds = self._lanes[lane].finish(began)
            self._metrics.ran(seconds, sum(part.count for part in parts), size)
            self._take_over(lane)
        for part in parts:
            self._deliver(part, results)

    def _take_over(self, lane: int) -> None:
        """Have a lane whose call ends, its only one, make the run that waits for another lane's."""
        with self._lock:
            if self._next is None or self._closing or self._lanes[lane].pending > 1:
                return
            if self._lanes[self._next_lane].pending > 1 and self._next.cancel():
                self._queue(lane)

    def _take(self, now: float) -> tuple[int, list[_Part]]:
        """Take rows out of the line; return the rows of the plan to run, and whose they are."""
        if not self._waiting:
            return 0, []
        # Lanes without a call are free, and this one, whose call this is.
        waiting, share = self._rows(), self._rows(1 + sum(not one.pending for one in self._lanes))
        if share < waiting and self._all_seconds(share) < self._all_seconds(waiting):
            self._due = self._waiting[-1].number  # the others' shares begin at once, too
            size = self._runs.first(share)
        else:
            size = self._runs.first(waiting)
        most, place = min(waiting, size), 0
        parts: list[_Part] = []
        while place < most and self._waiting:
            request = self._waiting[0]
            if not request.begin():
                self._waiting.popleft()
                continue
            if not request.taken:
                self._metrics.queue.observe(now - request.came)
            count = min(most - place, request.rows - request.taken)
            parts.append(_Part(request, request.taken, count, place))
            request.taken += count
            place += count
            if request.taken == request.rows:
                self._waiting.popleft()
        return size, parts

    def _gathered(self, lane: int, size: int, parts: Sequence[_Part]) -> Tensors:
        """Return the inputs of a run: rows of requests, and zeros in those to spare."""
        first, last = parts[0], parts[-1]
        if first.count == first.request.rows == size:
            return first.request.inputs
        gathered: dict[str, AnyArray] = {}
        for name, array in first.request.inputs.items():
            batch = self._batch(lane, name, array, size)
            for part in parts:
                batch[part.places] = part.request.inputs[name][part.rows]
            batch[last.places.stop :] = 0
            gathered[name] = batch
        return gathered

    def _batch(self, lane: int, name: str, like: AnyArray, size: int) -> AnyArray:
        """Return where a lane's batches are put together: one run is under way there at a time."""
        batches = self._batches[lane]
        if name not in batches or len(batches[name]) < size:
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
        # The event loop waits for the lock, and no other run has these rows.
        for name, array in outputs.items():
            request.outputs[name][part.rows] = array
        with self._lock:
            request.pending -= part.count
            if not request.pending:
                self._answer(request, request.outputs)

    def _answer(self, request: _Request, outcome: dict[str, AnyArray] | BaseException) -> None:
        """Tell whoever waits for a request, unless another run of it failed."""
        with self._lock:
            if request.answer.done():
                return
            if isinstance(outcome, BaseException):
                request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)
