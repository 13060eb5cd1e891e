"""Run the application on uvicorn, and drain it when a signal says so."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn

from neocpu.foundation.errors import UsageError
from neocpu.serving.app import create_app
from neocpu.serving.http_protocol import BoundedProtocol
from neocpu.serving.server import InferenceServer

FLUSH_SECONDS: Final = 5
"""What clients have, after the last answer was computed, to read it."""
KEEP_ALIVE_SECONDS: Final = 75
"""Longer than gateways keep an idle connection, so that none is closed under their next request."""
_BACKLOG: Final = 2048
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 << 20  # the most that M_MMAP_THRESHOLD may be


@dataclass(frozen=True, slots=True)
class Ended:
    """How serving ended.

    Attributes
    ----------
    signal : int
        Which one asked for it.
    unanswered : int
        Requests that were accepted and cut off, because the time for draining was over.
    """

    signal: int
    unanswered: int


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and does not listen yet; port 0 is any free one.

    Raises
    ------
    UsageError
        If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {reason}; see --host, --port") from error
    return bound


def url(bound: socket.socket) -> str:
    """Return the address of a bound socket as clients write it."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    server: InferenceServer,
    bound: socket.socket,
    drain_seconds: float,
    announce: Callable[[], None],
) -> Ended:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends that at once.

    Parameters
    ----------
    server : InferenceServer
        Started; it is closed at the end.
    announce : callable
        Called once connections are accepted.
    """
    _keep_freed_memory()
    # What start-up allocated stays for good: no collection has to walk through it again.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        create_app(server),
        http=BoundedProtocol,
        log_config=None,
        log_level="error",  # any client could fill a log with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who a client says it is
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )
    running = _DrainingServer(config, server, drain_seconds, announce)
    try:
        running.run(sockets=[bound])
    finally:
        server.close()  # the application did, unless it was hurried
    return Ended(running.received, running.unanswered)


def _keep_freed_memory() -> None:
    """Have the C library keep what is freed for the next request.

    Buffers of an image's size come and go with every request. By default their pages go back to the
    kernel each time, which clears them before it gives them out again: half of a request's time.
    """
    with suppress(AttributeError):  # of another C library than GNU's
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 8 * _KEPT_BYTES)


class _DrainingServer(uvicorn.Server):  # type: ignore[misc]
    """Goes on listening while it drains, so that late requests are refused, not lost."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: InferenceServer,
        drain_seconds: float,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.received = 0
        self.unanswered = 0
        self._server = server
        self._drain_seconds = drain_seconds
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        # Not before there is a loop for signals to reach.
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first, self.received = not self.received, self.received or int(sig)
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._begin_drain if first else self._end_drain)

    def _begin_drain(self) -> None:
        self._draining = asyncio.ensure_future(self._server.drain(self._drain_seconds))
        # A callback runs in any case: a task that is cancelled before its first step runs nothing.
        self._draining.add_done_callback(self._drained)

    def _end_drain(self) -> None:
        if self._draining is None or not self._draining.cancel():
            self.force_exit = True  # nor wait for clients to read the last answers

    def _drained(self, _: asyncio.Task[None]) -> None:
        self.unanswered = self._server.in_flight
        if self.unanswered:
            self.config.timeout_graceful_shutdown = 0
        self.should_exit = True
