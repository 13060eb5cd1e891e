"""Streams of a model: sessions that run at once, each with its own threads and arena."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import LifoQueue
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar

from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.queued_calls import QueuedCalls
from neocpu.runtime.session import Session, Source, open_session
from neocpu.runtime.thread_pool import ThreadPool, check_count

if TYPE_CHECKING:
    from concurrent.futures import Future

    from neocpu.runtime.timeline import TraceEvent

T = TypeVar("T")

TRIAL_SECONDS: Final = 0.25
"""Seconds for which each number of streams is tried, after one call of each stream."""
WORTH: Final = 1.03
"""The factor by which more streams must raise the calls a second: each call takes longer."""


class StreamPools:
    """A pool of threads for each stream, and the streams that are free.

    By default pools share the CPUs evenly. Raises UsageError: there is not at least one stream,
    there are far more than CPUs, or an error of `ThreadPool`.
    """

    def __init__(self, streams: int, threads: int | None = None) -> None:
        streams = check_count("streams", streams, " or 'auto'")
        each = max(1, usable_cpus() // streams) if threads is None else threads
        self.pools: Final = tuple(ThreadPool(each) for _ in range(streams))
        self.threads: Final[int] = self.pools[0].threads
        # The stream used last is taken first, because its arena is in the caches.
        self._free: LifoQueue[int] = LifoQueue()
        for position in reversed(range(streams)):
            self._free.put(position)
        self._queue = QueuedCalls("neocpu-streams", streams)
        self._process = os.getpid()
        weakref.finalize(self, self._queue.end).atexit = False  # the queue has its own exit handler

    @contextmanager
    def taken(self) -> Iterator[int]:
        """Wait for a free stream, and reserve it while the context lasts."""
        if os.getpid() != self._process:  # its streams may have been taken at the fork
            yield 0
            return
        position = self._free.get()
        try:
            yield position
        finally:
            self._free.put(position)

    @property
    def is_closed(self) -> bool:
        return self._queue.is_ended

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function and return at once: as many are called at once as there are streams."""
        future = self._queue.submit(function)
        if future is None:
            what = "are closed" if self.is_closed else "were made before this process forked"
            raise UsageError(f"the streams {what}: load the artifact again")
        return future

    def wait(self) -> None:
        self._queue.wait()
        for pool in self.pools:
            pool.wait()

    def close(self) -> None:
        """Finish the calls already made, then give up the threads. May be repeated."""
        self._queue.end()
        self.wait()
        for pool in self.pools:
            pool.close()


class StreamedSession:
    """A loaded model that several threads can run at once, used like a `Session`."""

    def __init__(self, session: Session, pools: StreamPools) -> None:
        others = (session.stream(pool) for pool in pools.pools[1:])
        self.streams: Final = (session, *others)
        self._pools = pools
        self.name: Final = session.name
        self.signatures: Final = session.signatures
        self.metadata: Final = session.metadata

    def run(
        self, number: int, inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, ...]:
        with self._pools.taken() as position:
            return self.streams[position].run(number, inputs, out)

    def run_sizes(
        self,
        sizes: tuple[int, ...],
        inputs: Sequence[AnyArray],
        out: Sequence[AnyArray] | None = None,
    ) -> tuple[AnyArray, ...]:
        with self._pools.taken() as position:
            return self.streams[position].run_sizes(sizes, inputs, out)

    def stream(self, pool: ThreadPool) -> NoReturn:
        raise UsageError("a module of several streams makes no other: load it with streams=1")

    def verify(self) -> None:
        self.streams[0].verify()

    def start_trace(self) -> NoReturn:
        raise UsageError("a module of several streams is not traced: load it with streams=1")

    def stop_trace(self) -> tuple[TraceEvent, ...]:
        self.start_trace()


def open_streams(
    source: Source, streams: int, threads: int | None, *, verify: bool, hugepages: bool
) -> tuple[StreamedSession, StreamPools]:
    pools = StreamPools(streams, threads)
    try:
        session = open_session(source, pools.pools[0], verify=verify, hugepages=hugepages)
        return StreamedSession(session, pools), pools
    except BaseException:
        pools.close()
        raise


def load_streams(
    source: Source,
    threads: int | None,
    streams: int | Literal["auto"],
    *,
    verify: bool,
    hugepages: bool,
) -> tuple[StreamedSession, StreamPools]:
    """Load a model on as many streams as were planned, or as make the most calls, or so many."""
    if streams == "auto":
        if (planned := planned_streams(source, threads)) is not None:
            streams, threads = planned
        else:
            streams = fastest_streams(source, threads, hugepages=hugepages)
    return open_streams(source, streams, threads, verify=verify, hugepages=hugepages)


def planned_streams(source: Source, threads: int | None) -> tuple[int, int] | None:
    """Return the number of streams that an artifact for throughput needs, and the threads of each.

    ``threads`` are by default those that a call was planned for. None: it is planned for latency.
    """
    session, pools = open_streams(source, 1, 1, verify=False, hugepages=False)
    pools.close()
    header = json.loads(session.metadata)
    if header.get("streams") is None:
        return None
    each = header["threads"] if threads is None else threads
    return max(1, usable_cpus() // max(1, each)), each


def fastest_streams(source: Source, threads: int | None, *, hugepages: bool) -> int:
    """Measure which power of two of streams makes the most calls a second on this process's CPUs.

    More streams are taken only if they make 3 % more calls.
    """
    most = max(1, usable_cpus() // (threads or 1))
    best, calls = 1, 0.0
    streams = 1
    while streams <= most:
        session, pools = open_streams(source, streams, threads, verify=True, hugepages=hugepages)
        try:
            found = _calls_per_second(session)
        finally:
            pools.close()
        if found > WORTH * calls:
            best, calls = streams, found
        streams *= 2
    return best


def _calls_per_second(session: StreamedSession) -> float:
    """Return the calls a second on zeros, from as many threads as there are streams."""
    from concurrent.futures import ThreadPoolExecutor  # here, because that takes 5 ms

    zeros = session.streams[0].zeros()
    for one in session.streams:
        one.run(0, zeros)

    def call_until(end: float) -> int:
        calls = 0
        while calls == 0 or time.perf_counter() < end:
            session.run(0, zeros)
            calls += 1
        return calls

    streams = len(session.streams)
    with ThreadPoolExecutor(streams) as callers:
        start = time.perf_counter()
        calls = sum(callers.map(call_until, [start + TRIAL_SECONDS] * streams))
        return calls / (time.perf_counter() - start)
