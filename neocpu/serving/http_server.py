"""Run the application on uvicorn, and drain it on a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn

from neocpu.foundation.errors import UsageError
from neocpu.serving.app import create_app
from neocpu.serving.freed_memory import keep_freed_memory
from neocpu.serving.http_protocol import BoundedProtocol
from neocpu.serving.server import InferenceServer

FLUSH_SECONDS: Final = 5
"""Seconds for clients to read the last answer after it was computed."""
KEEP_ALIVE_SECONDS: Final = 75
"""Seconds of an idle connection: longer than in gateways, so that none ends under a request."""
_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True)
class Ended:
    """The signal that ended serving, and the accepted requests that were cut off in draining."""

    signal: int
    unanswered: int


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet. Port 0 is any free port."""
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
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    server: InferenceServer,
    bound: socket.socket,
    drain_seconds: float,
    announce: Callable[[], None],
    tell: Callable[[str], None],
) -> Ended:
    """Serve until SIGTERM or SIGINT, then drain. A second signal ends draining at once.

    SIGHUP reloads the files that changed, unless it means that the terminal is gone. The server is
    started, and closed at the end. ``announce`` is called once connections are accepted, and
    ``tell`` with a line about each reloaded file.
    """
    keep_freed_memory()
    # Objects of the start-up stay for good: no collection needs to check them again.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        create_app(server),
        http=BoundedProtocol,
        log_config=None,
        log_level="error",  # any client could fill a log with warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on a client's address
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )
    running = _DrainingServer(config, server, drain_seconds, announce, tell)
    try:
        running.run(sockets=[bound])
    finally:
        server.close()  # the application has done it, unless it was interrupted
    return Ended(running.received, running.unanswered)


class _DrainingServer(uvicorn.Server):  # type: ignore[misc]
    """Listens on while it drains, so that late requests are refused and not lost."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: InferenceServer,
        drain_seconds: float,
        announce: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.received = 0
        self.unanswered = 0
        self._server = server
        self._drain_seconds = drain_seconds
        self._announce = announce
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._reloads: set[asyncio.Task[None]] = set()
        self._end_on_hangup = signal.getsignal(signal.SIGHUP)
        self._has_terminal = _has_terminal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._hangup)
        # Only now is there a loop that signals can reach.
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first, self.received = not self.received, self.received or int(sig)
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._begin_drain if first else self._end_drain)

    def _hangup(self) -> None:
        """Reload files that changed; or end, like other commands, if the terminal was closed."""
        gone = self._has_terminal and not _has_terminal()
        if gone and callable(self._end_on_hangup):  # `nohup` has the signal ignored
            self._end_on_hangup(signal.SIGHUP, None)
        elif self._draining is None:
            task = asyncio.ensure_future(self._reload())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        reloads = await self._server.models.reload_changed()
        for each in reloads:
            what = f"model '{each.entry.name}' version {each.entry.version}"
            if each.problem is None:
                self._tell(f"{what} was loaded anew from {each.entry.path}")
            else:
                self._tell(f"{what} is served as it was loaded before: {each.problem}")
        if not reloads:
            self._tell("no model's file has changed since it was loaded")

    def _begin_drain(self) -> None:
        self._draining = asyncio.ensure_future(self._server.drain(self._drain_seconds))
        # A callback always runs, whereas a task cancelled before its first step runs nothing.
        self._draining.add_done_callback(self._drained)

    def _end_drain(self) -> None:
        if self._draining is None or not self._draining.cancel():
            self.force_exit = True  # do not wait for clients to read the last answers either

    def _drained(self, _: asyncio.Task[None]) -> None:
        self.unanswered = self._server.in_flight
        if self.unanswered:
            self.config.timeout_graceful_shutdown = 0
        self.should_exit = True


def _has_terminal() -> bool:
    """Whether there is a terminal, which sends this process SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
