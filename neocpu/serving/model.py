"""A model being served: its modules, a bounded queue before them, and what they are measured by."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias

from neocpu import Module, load
from neocpu.foundation.errors import NeoCPUError, UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.serving.batches.batched_plans import any_rows, batches_of, check_apart
from neocpu.serving.batches.batching import Batcher, Batching
from neocpu.serving.batches.run_seconds import run_seconds
from neocpu.serving.datatypes import DATATYPES, AnyArray
from neocpu.serving.lane import Lane, least_busy
from neocpu.serving.metrics import Metrics, ModelMetrics
from neocpu.serving.on_each import on_each
from neocpu.serving.pictures import ENCODED_BYTES
from neocpu.serving.refusals import (
    AbandonedError,
    OverloadedError,
    RequestError,
    UnavailableError,
)
from neocpu.serving.repository import ModelEntry
from neocpu.serving.request import values_at_most
from neocpu.serving.response import binary_bytes
from neocpu.serving.tensors import json_bytes_at_most

WARMUP_CALLS: Final = 3

Departure: TypeAlias = Callable[[], Coroutine[Any, Any, None] | asyncio.Future[None]]
"""Returns what ends when a client goes away, and may be cancelled."""


class ServedModel:
    """One version of a model: a module on each lane.

    Attributes
    ----------
    entry : ModelEntry
    ready : bool
        Whether it is warmed up and open.
    signatures : tuple of Signature
        The signatures, of which a request has one; ``bounded`` where it may have any number of
        rows.
    request_values : int
        The most values that the JSON of a request has.
    request_bytes : int
        The most bytes that a request has, if it is not padded.
    answer_bytes : int
        The least bytes of an answer, roughly.
    rows_together : int
        Rows of requests that are computed together, at most: 1 if each is computed by itself.
    """

    def __init__(
        self,
        entry: ModelEntry,
        lanes: Sequence[Lane],
        queue: int,
        metrics: Metrics,
        batching: Batching | None = None,
    ) -> None:
        """Load the artifact and warm it up.

        Parameters
        ----------
        lanes : sequence of Lane
            Shared with other models.
        queue : int
            The most requests that wait, besides those that run: one on each lane, or a batch.
        batching : Batching, optional
            Compute requests together, if the model has plans for more than one row.

        Raises
        ------
        NeoCPUError
            See `neocpu.load`; or the rows of a batch depend on each other.
        """
        self.entry = entry
        self.ready = False
        self.metrics = ModelMetrics(metrics, entry.name, entry.version)
        self._lanes = lanes
        self._queue = queue
        self.rows_together = 1
        self._admitted = 0
        self._idle: asyncio.Future[None] | None = None
        self._seconds = 0.0
        self._modules: list[Module] = []
        self.signatures: tuple[Signature, ...] = ()
        self._batchers: tuple[Batcher | None, ...] = ()
        try:
            self._modules.append(load(entry.path, pool=lanes[0].pool))
            for lane in lanes[1:]:
                self._modules.append(self._modules[0].stream(lane.pool))
            _check_types(entry, self._modules[0].signatures[0])
            for module in self._modules:
                module.wait_verified()
            # In turn, N would take N times as long.
            on_each(self._modules, lambda module: module.warmup(WARMUP_CALLS))
            self.signatures = self._modules[0].signatures
            self._batchers = tuple(None for _ in self.signatures)
            if batching is not None:
                self._compute_together(batching)
            self.request_values = values_at_most(self.signatures)
            self.request_bytes = max(_request_bytes(each.inputs) for each in self.signatures)
            self.answer_bytes = min(
                binary_bytes([s.with_rows(1) for s in each.outputs] if batcher else each.outputs)
                for each, batcher in zip(self.signatures, self._batchers, strict=True)
            )
        except BaseException:
            self.close()
            raise
        self.ready = True
        self.metrics.ready.inc()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Hold one of the bounded number of places for a request, and count how it is answered.

        To be entered before its body is read, and left with the answer.

        Raises
        ------
        RequestError
            All places are taken, or the model is closed or cannot run; the answer may raise it too.
        """
        code = 500
        try:
            self._admit()
            try:
                yield
            finally:
                self._admitted -= 1
                self.metrics.in_flight.dec()
                if self._idle is not None and not self._admitted and not self._idle.done():
                    self._idle.set_result(None)
            code = 200
        except RequestError as error:
            code = error.status
            raise
        except NeoCPUError as error:
            # The request was checked: it is the module that cannot run, closed or damaged.
            code = UnavailableError.status
            raise UnavailableError(str(error)) from error
        finally:
            self.metrics.answered(code)

    async def infer(
        self, signature: int, inputs: Mapping[str, AnyArray], gone: Departure | None = None
    ) -> dict[str, AnyArray]:
        """Run on the lane with the fewest calls, or together with other requests.

        One that still waits is cancelled with its task.

        Parameters
        ----------
        signature : int
            The number of the inputs' signature among `signatures`.
        inputs : mapping of str to array
            The inputs as `Module.run` takes them.
        gone : callable, optional
            Return what ends when the client goes away; it is not computed for then.

        Raises
        ------
        AbandonedError
            The client went away first.
        """
        if (batcher := self._batchers[signature]) is not None:
            answer = batcher.submit(inputs, asyncio.get_running_loop().call_later)
            return await _unless(gone, answer)
        position = least_busy(self._lanes)
        lane = self._lanes[position]
        submitted = time.perf_counter()
        future = lane.count(self._modules[position].submit(inputs))
        future.add_done_callback(partial(self._observe, lane, submitted))
        return await _unless(gone, future)

    async def wait_idle(self) -> None:
        """Wait for the answers to all requests that were admitted; nobody may admit more."""
        if self._admitted:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def close(self) -> None:
        """Wait for the call under way and free the modules. May be repeated."""
        if self.ready:
            # Not set to 0: the one that replaces it may be ready already.
            self.metrics.ready.dec()
        self.ready = False
        for batcher in filter(None, self._batchers):
            batcher.close()
        for module in self._modules:
            module.close()

    def _compute_together(self, batching: Batching) -> None:
        """Gather requests from now on."""
        path, headers = self.entry.path, self._modules[0].metadata.each
        found: list[tuple[Signature, Batcher | None]] = []
        for plans in batches_of(path, self.signatures):
            one = plans[max(plans)]
            if max(plans) == 1:
                found.append((one, None))
                continue
            check_apart(path, [headers[each.number or 0] for each in plans.values()])
            seconds = run_seconds(self._modules, one.inputs, plans)
            batcher = Batcher(self._modules, self._lanes, seconds, batching, self.metrics)
            found.append((any_rows(one, batching.most), batcher))
            self.rows_together = batching.most
            self._seconds = min(time / rows for rows, time in seconds.items())
        self.signatures, self._batchers = zip(*found, strict=True)

    def _admit(self) -> None:
        if not self.ready:
            raise UnavailableError(f"model '{self.entry.name}' is not ready")
        if self._admitted >= len(self._lanes) * self.rows_together + self._queue:
            seconds = self._seconds * self._admitted / len(self._lanes)
            raise OverloadedError(
                f"{self._queue} requests wait for model '{self.entry.name}' already: "
                "try again later",
                max(1, math.ceil(seconds)),
            )
        self._admitted += 1
        self.metrics.in_flight.inc()

    def _observe(self, lane: Lane, submitted: float, future: Future[Any]) -> None:
        if future.cancelled():
            return
        waited, self._seconds = lane.finish(submitted)
        self.metrics.queue.observe(waited)
        self.metrics.inference.observe(self._seconds)


async def _unless(
    gone: Departure | None, answer: Future[dict[str, AnyArray]]
) -> dict[str, AnyArray]:
    """Return the answer, unless the client goes away before it is there.

    As `asyncio.wrap_future` does, with fewer objects, which are made with every request.
    """
    loop = asyncio.get_running_loop()
    left = loop.create_future()

    def end(client_left: bool) -> None:
        if not left.done():
            left.set_result(client_left)

    def answered(_: object) -> None:
        with suppress(RuntimeError):  # of a loop that was closed meanwhile
            loop.call_soon_threadsafe(end, False)

    answer.add_done_callback(answered)
    watch = None if gone is None else asyncio.ensure_future(gone())
    if watch is not None:
        watch.add_done_callback(lambda _: end(True))
    try:
        if await left:
            raise AbandonedError("the client went away before the answer")
        return answer.result()
    finally:
        answer.cancel()  # nothing, if it is there
        if watch is not None:
            watch.cancel()


def _request_bytes(inputs: Sequence[TensorSpec]) -> int:
    """Return how many bytes a request with these inputs has at most, if it is not padded."""
    pictures = sum(spec.shape[0] for spec in inputs if spec.picture)
    return json_bytes_at_most(inputs) + ENCODED_BYTES * pictures


def _check_types(entry: ModelEntry, signature: Signature) -> None:
    """Refuse a model with a tensor that the protocol has no datatype for."""
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype not in DATATYPES:
            raise UnsupportedError(
                f"{entry.path}: '{spec.name}' is {spec.dtype}, which the Open Inference Protocol "
                f"lacks; it has {', '.join(DATATYPES)}"
            )
