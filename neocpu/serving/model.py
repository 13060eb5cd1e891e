"""A model being served: its modules, a bounded queue in front of them, and their metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from neocpu import Module, load
from neocpu.foundation.errors import NeoCPUError, UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.serving.batches.batched_plans import (
    any_rows,
    batches_of,
    check_looked_for_rows,
    check_row_independent,
    on_each,
    run_seconds,
)
from neocpu.serving.batches.batching import Batcher, Batching
from neocpu.serving.datatypes import DATATYPES, AnyArray
from neocpu.serving.metrics import Metrics, ModelMetrics
from neocpu.serving.pictures import ENCODED_BYTES
from neocpu.serving.refusals import AbandonedError, OverloadedError, RequestError, UnavailableError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.request import values_at_most
from neocpu.serving.response import binary_bytes
from neocpu.serving.sized_requests import SizedRequests, rows_of
from neocpu.serving.tensors import json_bytes_at_most
from neocpu.serving.workers import Worker, least_busy

WARMUP_CALLS: Final = 3

Departure: TypeAlias = Callable[[], Coroutine[Any, Any, None] | asyncio.Future[None]]
"""Returns a coroutine or future that ends when a client goes away, and may be cancelled."""


class ServedModel:
    """One version of a model, with a module for each worker.

    `signatures`: those of requests, ``bounded`` if these may have any number of rows. `sized`: all
    signatures of requests that choose extents; `signatures` has the typical one then.
    `request_values` and `request_bytes`: the most values in the JSON of a request, and bytes of one
    that is not padded. `answer_bytes`: the least bytes of an answer, roughly. `joint_rows`: the
    most rows of requests that are computed jointly; 1 if each request runs alone.
    """

    def __init__(
        self,
        entry: ModelEntry,
        workers: Sequence[Worker],
        queue: int,
        metrics: Metrics,
        batching: Batching | None = None,
    ) -> None:
        """Load the artifact and warm it up; all models share the workers.

        `queue`: the most requests that wait, besides those that run: one or a batch on each worker.
        `batching` is for models that have plans for several rows.
        """
        self.entry = entry
        self.ready = False
        self.metrics = ModelMetrics(metrics, entry.name, entry.version)
        self._workers = workers
        self._queue = queue
        self.joint_rows = 1
        self._admitted = 0
        self._idle: asyncio.Future[None] | None = None
        self._seconds = 0.0
        self._modules: list[Module] = []
        self.signatures: tuple[Signature, ...] = ()
        self.sized: SizedRequests | None = None
        self._batchers: tuple[Batcher | None, ...] = ()
        try:
            self._modules.append(load(entry.path, pool=workers[0].pool))
            for worker in workers[1:]:
                self._modules.append(self._modules[0].stream(worker.pool))
            _check_types(entry, self._modules[0].signatures[0])
            for module in self._modules:
                module.wait_verified()
            # All at once, because one after another would take as many times as long.
            on_each(self._modules, lambda module: module.warmup(WARMUP_CALLS))
            self.signatures = self._modules[0].signatures
            self.sized = _sized(self._modules[0])
            self._batchers = tuple(None for _ in self.signatures)
            if batching is not None:
                self._start_batching(batching)
            self._set_limits()
        except BaseException:
            self.close()
            raise
        self.ready = True
        self.metrics.ready.inc()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Take one of the bounded places for a request, and count its answer by status.

        Enter the context before the body is read, and leave it with the answer. Raises
        RequestError: all places are taken, the model is closed or cannot run, or the block does.
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
            # The request was checked, so the module cannot run: it is closed or damaged.
            code = UnavailableError.status
            raise UnavailableError(str(error)) from error
        finally:
            self.metrics.answered(code)

    async def infer(
        self, signature: int, inputs: Mapping[str, AnyArray], gone: Departure | None = None
    ) -> dict[str, AnyArray]:
        """Run on the worker with the fewest calls, or jointly with other requests.

        A request that still waits is cancelled with its task, or by the client's departure, which
        ``gone`` returns a future of. Raises AbandonedError: the client went away first.
        """
        if (batcher := self._batchers[signature]) is not None:
            answer = batcher.submit(inputs, asyncio.get_running_loop().call_later)
            return await _unless(gone, answer)
        position = least_busy(self._workers)
        worker = self._workers[position]
        size = None if self.sized is None else self.sized.name_of(inputs)
        submitted = time.perf_counter()
        future = worker.count(self._modules[position].submit(inputs))
        future.add_done_callback(partial(self._observe, worker, submitted, size))
        return await _unless(gone, future)

    async def wait_idle(self) -> None:
        """Wait for the answers to all admitted requests. No more may be admitted."""
        if self._admitted:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def close(self) -> None:
        """Wait for the call under way and free the modules. May be repeated."""
        if self.ready:
            # Not set to 0: the model that replaces this one may be ready already.
            self.metrics.ready.dec()
        self.ready = False
        for batcher in filter(None, self._batchers):
            batcher.close()
        for module in self._modules:
            module.close()

    def _start_batching(self, batching: Batching) -> None:
        path, headers = self.entry.path, self._modules[0].metadata.each
        size = None if self.sized is None else rows_of(self.sized.sized)
        found: list[tuple[Signature, Batcher | None]] = []
        for plans in batches_of(path, self.signatures):
            one = plans[max(plans)]
            rows = [*plans] if size is None else size.powers(batching.most)
            if max(rows) == 1:
                found.append((one, None))
                continue
            if size is not None:
                check_looked_for_rows(path, headers[0])
            check_row_independent(path, [headers[each.number or 0] for each in plans.values()])
            if self.sized is not None:
                self.sized = replace(self.sized, rows=batching.most, size=size)
            seconds = run_seconds(self._modules, one.inputs, rows)
            known = batching, self.metrics, self.sized
            batcher = Batcher(self._modules, self._workers, seconds, *known)
            found.append((any_rows(one, batching.most), batcher))
            self.joint_rows = batching.most
            self._seconds = min(time / rows for rows, time in seconds.items())
        self.signatures, self._batchers = zip(*found, strict=True)

    def _set_limits(self) -> None:
        """Find out how large requests may be, and how small answers."""
        largest = self.signatures if self.sized is None else (self.sized.largest,)
        smallest = self.signatures if self.sized is None else (self.sized.smallest,)
        self.request_values = values_at_most(largest)
        self.request_bytes = max(_request_bytes(each.inputs) for each in largest)
        self.answer_bytes = min(
            binary_bytes([s.with_rows(1) for s in each.outputs] if batcher else each.outputs)
            for each, batcher in zip(smallest, self._batchers, strict=True)
        )

    def _admit(self) -> None:
        if not self.ready:
            raise UnavailableError(f"model '{self.entry.name}' is not ready")
        if self._admitted >= len(self._workers) * self.joint_rows + self._queue:
            seconds = self._seconds * self._admitted / len(self._workers)
            raise OverloadedError(
                f"{self._queue} requests wait for model '{self.entry.name}' already: "
                "try again later",
                max(1, math.ceil(seconds)),
            )
        self._admitted += 1
        self.metrics.in_flight.inc()

    def _observe(
        self, worker: Worker, submitted: float, size: str | None, future: Future[Any]
    ) -> None:
        if future.cancelled():
            return
        waited, self._seconds = worker.finish(submitted)
        self.metrics.queue.observe(waited)
        self.metrics.inference.observe(self._seconds)
        if size is not None:
            self.metrics.ran_size(self._seconds, size)


async def _unless(
    gone: Departure | None, answer: Future[dict[str, AnyArray]]
) -> dict[str, AnyArray]:
    """Return the answer, unless the client leaves; made of fewer objects than wrap_future's."""
    loop = asyncio.get_running_loop()
    left = loop.create_future()

    def end(client_left: bool) -> None:
        if not left.done():
            left.set_result(client_left)

    def answered(_: object) -> None:
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
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
        answer.cancel()  # without effect if it is done
        if watch is not None:
            watch.cancel()


def _sized(module: Module) -> SizedRequests | None:
    sized = module.metadata.sized_signatures if module.sizes else None
    return None if sized is None else SizedRequests(sized)


def _request_bytes(inputs: Sequence[TensorSpec]) -> int:
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
