"""Modules with calls that end when a test asks, and a server of them."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest
from v2_requests import body, tensor

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.serving import model as served
from neocpu.serving import workers
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferCall, InferenceServer, Limits

GOOD = body(tensor("x", np.array([1, 2], "float32")))
"""A request."""
INPUT = TensorSpec("x", "float32", (2,))
OUTPUT = TensorSpec("y", "float32", (2,))


class FakeModule:
    """``y = 2 x``, of calls that wait for `finish`."""

    def __init__(self, *, log: list[str]) -> None:
        self.sizes = ()
        self.signatures = (Signature((INPUT,), (OUTPUT,)),)
        self.calls: list[tuple[Future, Any]] = []
        self.closed = False
        self._log = log

    def wait_verified(self) -> None:
        self._log.append("verified")

    def warmup(self, n: int) -> None:
        self._log.append("warm")

    def submit(self, inputs: Any) -> Future:
        future: Future = Future()
        self.calls.append((future, inputs))
        return future

    def finish(self, error: Exception | None = None) -> None:
        """End the oldest call."""
        future, inputs = self.calls.pop(0)
        if future.set_running_or_notify_cancel():
            if error:
                future.set_exception(error)
            else:
                future.set_result({"y": np.asarray(inputs["x"]) * 2})

    def close(self) -> None:
        self.closed = True


def loaded(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let servers load such modules; return ``all`` made so far, and the ``log`` of their calls."""
    made = SimpleNamespace(all=[], log=[])

    class FakePool:
        def __init__(self, threads: int) -> None:
            self.threads = threads

        def close(self) -> None:
            made.log.append("pool closed")

    def load(path: str, *, pool: FakePool) -> FakeModule:
        made.log.append(f"load {path} on {pool.threads}")
        return stream(pool)

    def stream(pool: FakePool) -> FakeModule:
        made.all.append(FakeModule(log=made.log))
        made.all[-1].stream = stream
        return made.all[-1]

    monkeypatch.setattr(served, "load", load)
    monkeypatch.setattr(workers, "ThreadPool", FakePool)
    return made


def start(*models: str, **limits: Any) -> InferenceServer:
    """Return a running server of models, each a name or ``name:version``."""
    names = models or ("net",)
    server = InferenceServer([ModelEntry(*_split(name)) for name in names], Limits(**limits))
    server.start()
    return server


def _split(text: str) -> tuple[str, ...]:
    name, _, version = text.partition(":")
    return (name, f"{name}.so", version) if version else (name, f"{name}.so")


async def chunks(
    content: bytes = GOOD, pause: asyncio.Event | None = None, size: int = 7
) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        if pause is not None:
            await pause.wait()
        yield content[start : start + size]


def ask(
    server: InferenceServer,
    name: str = "net",
    version: str | None = None,
    content: bytes = GOOD,
    length: int | None = None,
    **options: Any,
) -> asyncio.Future:
    """Send a request, in chunks."""
    call = InferCall(model=name, version=version, length=length, json_bytes=None)

    async def answer() -> Any:
        answer, share = await server.infer(call, chunks(content, **options), stays)
        share.close()
        return answer

    return asyncio.ensure_future(answer())


async def stays() -> None:
    """A client that waits for its answer."""
    await asyncio.Event().wait()


async def run_pending() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def metrics(server: InferenceServer) -> dict[str, str]:
    lines = generate_latest(server.metrics.registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
