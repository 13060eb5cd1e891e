"""The inference server without its web framework: models, admission and draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyio import move_on_after
from prometheus_client import CollectorRegistry

from neocpu.foundation.host import usable_cpus, usable_memory
from neocpu.runtime.thread_pool import Threads
from neocpu.serving.batches.batching import Batching
from neocpu.serving.body import discard_body, read_body
from neocpu.serving.extensions import Rest
from neocpu.serving.in_flight import InFlight, Share
from neocpu.serving.loaded_models import LoadedModels
from neocpu.serving.metrics import Metrics
from neocpu.serving.model import Departure, ServedModel
from neocpu.serving.refusals import ForbiddenError, UnavailableError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.request import InferRequest, parse_picture, parse_request
from neocpu.serving.response import InferResponse, render_response
from neocpu.serving.workers import Worker

DRAINING: Final = "the server is shutting down: send the request to another"
LATE_SECONDS: Final = 4.0
"""Seconds for clients to send a request that is refused because the server is shutting down."""
_MEMORY_PARTS: Final = 4
"""Bodies and answers may take one part of the memory. Parsing and computing take the others."""
_QUICK_BYTES: Final = 1 << 20
"""The most bytes of JSON that are parsed while other requests wait: it takes milliseconds."""
CUT_OFF: Final = "the server shut down before the answer: send the request to another"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds and options of a server."""

    instances: int = 1  # calls that run at the same time, each on its own threads
    threads: Threads = None  # of each call; by default an equal share of this process's CPUs
    queue: int = 64  # the most requests of a model that may wait
    max_request_bytes: int | None = None  # by default the most that a model's inputs take as JSON
    body_seconds: float = 30.0  # the most that a body may take to arrive
    max_bytes_in_flight: int | None = None  # by default a quarter of this process's memory
    batching: Batching | None = None  # if None, each request runs alone
    model_control: bool = False  # whether clients may reload and unload the models

    @property
    def bytes_in_flight(self) -> int:
        """The most bytes of requests under way and of answers not sent yet."""
        return self.max_bytes_in_flight or usable_memory() // _MEMORY_PARTS

    @property
    def threads_per_instance(self) -> Threads:
        return self.threads or max(1, usable_cpus() // self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferCall:
    """The parts of an inference request besides its body."""

    model: str
    version: str | None
    length: int | None  # Content-Length; None if the body is chunked
    json_bytes: int | None  # Inference-Header-Content-Length
    is_picture: bool = False  # by Content-Type
    rest: Rest | None = None


class InferenceServer:
    """Models behind the Open Inference Protocol v2.

    `start` and `close` block. All other methods belong to one event loop.
    """

    def __init__(self, models: Iterable[ModelEntry], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.metrics = Metrics(CollectorRegistry())
        self._bytes = InFlight(self.limits.bytes_in_flight, self.metrics.registry)
        self.draining = False  # whether new requests are refused for good
        self.models = LoadedModels(models, self._open)
        self._workers: list[Worker] = []
        self.in_flight = 0  # requests accepted and not yet answered, for all models
        self._parser = ThreadPoolExecutor(1, "neocpu-parser")
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        """Load all models and warm them up, unless that was done."""
        if self._workers:
            return
        limits = self.limits
        try:
            for _ in range(limits.instances):
                self._workers.append(Worker(limits.threads_per_instance))
            self.models.start()
        except BaseException:
            self.close()
            raise

    @property
    def ready(self) -> bool:
        """Whether every model is warmed up and new requests are taken."""
        return self.models.ready and not self.draining

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and wait at most so many seconds for the accepted ones."""
        self.draining = True
        with move_on_after(seconds):
            await self._idle.wait()

    def close(self) -> None:
        """Close all modules and pools. May be repeated."""
        self.models.close()
        for worker in self._workers:
            worker.pool.close()

    async def load(self, name: str) -> None:
        self._check_control()
        await self.models.load(name)

    async def unload(self, name: str) -> None:
        self._check_control()
        await self.models.unload(name)

    async def infer(
        self, call: InferCall, chunks: AsyncIterator[bytes], gone: Departure
    ) -> tuple[InferResponse, Share]:
        """Answer an inference request; close the share of bytes in flight once that is sent.

        The body is read only if the request is admitted, and ``gone`` called after that.
        """
        model = self.models.find(call.model, call.version)
        if self.draining:
            await discard_body(chunks, LATE_SECONDS)
        with model.answering(), self._accepted():
            share = self._bytes.share(model.answer_bytes)
            try:
                return await self._answer(model, call, chunks, gone, share), share
            except BaseException as error:
                share.close()
                if self.draining and isinstance(error, asyncio.CancelledError):
                    raise UnavailableError(CUT_OFF, 1) from None
                raise

    async def _answer(
        self,
        model: ServedModel,
        call: InferCall,
        chunks: AsyncIterator[bytes],
        gone: Departure,
        share: Share,
    ) -> InferResponse:
        body = await read_body(
            chunks,
            call.length,
            limit=self.limits.max_request_bytes or model.request_bytes,
            seconds=self.limits.body_seconds,
            json_bytes=call.json_bytes,
            hold=share.hold_request,
            rest=call.rest,
        )
        request = await self._parse(body, call, model)
        results = await model.infer(request.signature, request.inputs, gone)
        answer = render_response(model.entry.name, model.entry.version, request, results)
        share.hold_request(0)
        share.hold_answer(len(answer.body))
        return answer

    async def _parse(self, body: memoryview, call: InferCall, model: ServedModel) -> InferRequest:
        """Parse a request; pictures and long JSON in a thread, so that other requests go on.

        It parses one at a time, because a parsed document or picture takes many times its bytes. It
        is always the same thread, because the C library keeps freed memory per thread.
        """
        known = model.signatures, model.request_values, model.sized
        parse = partial(parse_request, body, call.json_bytes, *known)
        if call.is_picture:
            parse = partial(parse_picture, body, model.signatures)
        size = body.nbytes if call.json_bytes is None else call.json_bytes
        if size <= _QUICK_BYTES and not any(spec.picture for spec in model.signatures[0].inputs):
            return parse()
        return await asyncio.get_running_loop().run_in_executor(self._parser, parse)

    def _open(self, entry: ModelEntry) -> ServedModel:
        limits = self.limits
        return ServedModel(entry, self._workers, limits.queue, self.metrics, limits.batching)

    def _check_control(self) -> None:
        if not self.limits.model_control:
            raise ForbiddenError(
                "clients may not load or unload models here: the server was started without "
                "--model-control; SIGHUP reloads files that changed"
            )
        if self.draining:
            raise UnavailableError(DRAINING, 1)

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        if self.draining:
            raise UnavailableError(DRAINING, 1)
        self.in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
