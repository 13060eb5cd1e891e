"""An inference server without a web framework: models, admission, draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anyio import move_on_after
from prometheus_client import CollectorRegistry

from neocpu.foundation.errors import did_you_mean
from neocpu.foundation.host import usable_cpus, usable_memory
from neocpu.runtime.thread_pool import Threads
from neocpu.serving.batching import Batching
from neocpu.serving.body import discard_body, read_body
from neocpu.serving.extensions import Rest
from neocpu.serving.in_flight import InFlight, Share
from neocpu.serving.lane import Lane
from neocpu.serving.metadata import model_metadata
from neocpu.serving.metrics import Metrics
from neocpu.serving.model import Departure, ServedModel
from neocpu.serving.refusals import UnavailableError, UnknownModelError
from neocpu.serving.repository import ModelEntry, unique
from neocpu.serving.request import InferRequest, parse_picture, parse_request
from neocpu.serving.response import InferResponse, render_response
from neocpu.serving.tensors import brief

DRAINING: Final = "the server is shutting down: send the request to another"
LATE_SECONDS: Final = 4.0
"""What clients have to send a request that is refused because the server is shutting down."""
_MEMORY_PARTS: Final = 4
"""Bodies and answers may take one part of the memory; parsing and computing take the others."""
_QUICK_BYTES: Final = 1 << 20
"""JSON up to here takes milliseconds; other requests wait so long."""
CUT_OFF: Final = "the server shut down before the answer: send the request to another"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes on.

    Attributes
    ----------
    instances : int
        Calls that run at the same time, each on threads of its own.
    threads : int or "performance", optional
        Of each call; by default an equal share of the CPUs this process may use.
    queue : int
        Requests of a model that may wait.
    max_request_bytes : int or None
        Largest body; by default what the model's inputs can take as JSON.
    body_seconds : float
        Longest time a body may take to arrive.
    max_bytes_in_flight : int or None
        Most bytes of all requests under way and of answers that are not sent yet; by default a
        quarter of the memory this process may use.
    batching : Batching or None
        How requests of a model are computed together; each by itself if None.
    """

    instances: int = 1
    threads: Threads = None
    queue: int = 64
    max_request_bytes: int | None = None
    body_seconds: float = 30.0
    max_bytes_in_flight: int | None = None
    batching: Batching | None = None

    @property
    def bytes_in_flight(self) -> int:
        """Most bytes of requests under way and of answers that are not sent yet."""
        return self.max_bytes_in_flight or usable_memory() // _MEMORY_PARTS

    @property
    def threads_per_instance(self) -> Threads:
        """How many threads a call runs on."""
        return self.threads or max(1, usable_cpus() // self.instances)


@dataclass(frozen=True, slots=True)
class InferCall:
    """What came with an inference request besides its body.

    Attributes
    ----------
    model : str
    version : str or None
        None for the latest.
    length : int or None
        Content-Length; None if the body is chunked.
    json_bytes : int or None
        Inference-Header-Content-Length.
    is_picture : bool
        Whether Content-Type says so of the body.
    rest : callable or None
        Reads what follows the first chunk of the body to where it is wanted.
    """

    model: str
    version: str | None
    length: int | None
    json_bytes: int | None
    is_picture: bool = False
    rest: Rest | None = None


class InferenceServer:
    """Models behind the Open Inference Protocol v2.

    `start` and `close` block; everything else belongs to one event loop.

    Attributes
    ----------
    metrics : Metrics
    draining : bool
        Whether new requests are refused for good.
    in_flight : int
        Requests accepted and not yet answered, of all models.
    """

    def __init__(self, models: Iterable[ModelEntry], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.metrics = Metrics(CollectorRegistry())
        self._bytes = InFlight(self.limits.bytes_in_flight, self.metrics.registry)
        self.draining = False
        self._entries = unique(models)
        self._lanes: list[Lane] = []
        self._models: dict[str, dict[str, ServedModel]] = {}
        self.in_flight = 0
        self._parsing = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        """Load all models and warm them up; nothing if that is done.

        Raises
        ------
        NeoCPUError
            As `neocpu.load`, of the first that cannot be loaded.
        """
        if self._lanes:
            return
        limits = self.limits
        try:
            for _ in range(limits.instances):
                self._lanes.append(Lane(limits.threads_per_instance))
            for entry in self._entries:
                model = ServedModel(entry, self._lanes, limits.queue, self.metrics, limits.batching)
                self._models.setdefault(entry.name, {})[entry.version] = model
        except BaseException:
            self.close()
            raise

    @property
    def ready(self) -> bool:
        """Whether every model is warmed up and new requests are taken."""
        count = sum(model.ready for model in self._all())
        return count == len(self._entries) and not self.draining

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and wait at most so long for those accepted."""
        self.draining = True
        with move_on_after(seconds):
            await self._idle.wait()

    def close(self) -> None:
        """Close all modules and pools. May be repeated."""
        for model in self._all():
            model.close()
        for lane in self._lanes:
            lane.pool.close()

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model, in its latest version unless told which.

        Raises
        ------
        UnknownModelError
        """
        versions = self._models.get(name)
        if versions is None:
            hint = did_you_mean(name[:128], self._models)
            raise UnknownModelError(f"no model {brief(name)} is served here{hint}")
        if version is None:
            return versions[max(versions, key=int)]
        if version not in versions:
            raise UnknownModelError(
                f"model '{name}' has no version {brief(version)}, only {', '.join(versions)}"
            )
        return versions[version]

    def metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """Return what the protocol tells of a model."""
        model = self.find(name, version)
        versions = [version] if version else sorted(self._models[name], key=int)
        return model_metadata(name, versions, model.signatures)

    def index(self, *, only_ready: bool) -> list[dict[str, str]]:
        """Return the repository index: every version of every model, and whether it is ready."""
        listed = []
        for model in self._all():
            ready = model.ready and not self.draining
            if ready or not only_ready:
                state = "READY" if ready else "UNAVAILABLE"
                entry = model.entry
                listed.append({"name": entry.name, "version": entry.version, "state": state})
        return listed

    async def infer(
        self,
        call: InferCall,
        chunks: AsyncIterator[bytes],
        gone: Departure,
    ) -> tuple[InferResponse, Share]:
        """Answer an inference request.

        Parameters
        ----------
        chunks : async iterator of bytes
            The body; read only if the request is admitted.
        gone : callable
            Called once the body is read.

        Returns
        -------
        InferResponse
        Share
            What it holds of the bytes in flight, to be closed once it is sent.

        Raises
        ------
        RequestError
            Whatever it is refused for.
        """
        model = self.find(call.model, call.version)
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
        """Parse a request: pictures and much JSON in a thread, so that others get in between.

        One at a time, for a parsed document and a picture take many times their bytes.
        """
        known = model.signatures, model.request_values
        parse = partial(parse_request, body, call.json_bytes, *known)
        if call.is_picture:
            parse = partial(parse_picture, body, model.signatures)
        size = body.nbytes if call.json_bytes is None else call.json_bytes
        if size <= _QUICK_BYTES and not any(spec.picture for spec in model.signatures[0].inputs):
            return parse()
        async with self._parsing:
            return await asyncio.to_thread(parse)

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        """Count a request among those that a shutdown waits for."""
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

    def _all(self) -> Sequence[ServedModel]:
        return [model for versions in self._models.values() for model in versions.values()]
