"""uvicorn's HTTP protocol, with bounds on the data a client sends before it gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from neocpu.serving.extensions import GONE, KEEP_NEXT, REST

HEAD_BYTES: Final = 1 << 16
"""The most bytes of a request's head, or of trailers, plus one read of the socket."""
HEAD_SECONDS: Final = 20.0
"""The most seconds from a connection, a head's first byte or an empty line to a head's end."""
BODY_SECONDS: Final = 60.0
"""The most seconds of a body, even of one that nobody reads because it is already refused."""
ANSWER_SECONDS: Final = 60.0
"""The most seconds for a client to read the part of an answer beyond the system's buffers."""

PIECE_BYTES: Final = 1 << 14
"""The most bytes of one read of the socket, after which bounds are checked, but for `REST`."""

MAX_PIPELINED: Final = 16
"""The most requests that may wait for an earlier answer; one read can bring thousands."""


class _Transport:
    """A transport that drops data for a client that has gone, where uvloop's raise."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._keeps = False  # whether the next data are kept for the write after it
        self._kept = b""

    def keep_next(self) -> None:
        """Send the next data together with those after them, if that is worth a copy."""
        self._keeps = True

    def write(self, data: bytes) -> None:
        if self._keeps:
            self._keeps, self._kept = False, data
            return
        pieces = [self._kept, data] if len(data) > PIECE_BYTES else [self._kept + data]
        self._kept = b""
        for piece in filter(None, pieces):
            if not self._transport.is_closing():
                self._transport.write(piece)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(asyncio.BufferedProtocol):
    """A connection that provides the buffer for each read of the socket.

    It does not inherit uvicorn's protocol: uvloop asks no `asyncio.Protocol` for buffers.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._connection = Connection(*arguments, **options)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        return self._connection.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.take(nbytes)


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """uvicorn's protocol of one connection, within bounds.

    uvicorn alone waits for ever, and keeps heads of any size and any number of requests. A body
    goes through its parser until the application asks for the rest by `REST`, which is read
    directly into its memory: the parser would have it copied six times.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline = Deadline(self.loop, self._late)
        self._phase = 0  # even: in a head or before it; odd: in a body
        self._head_bytes = 0  # received since the parser last let go of any
        self._body_bytes = 0  # of all bodies
        self._refused = False
        # The connection is dropped with all unread data: closing it would wait for the client.
        self._writing = Deadline(self.loop, lambda: self.transport.abort())
        self._piece = bytearray()  # the buffer of the last read
        self._length = 0  # bytes of the body, if the head declares them
        self._missing = 0  # bytes to come of a body that bypasses the parser
        self._place: memoryview | None = None  # the memory for them; None if nobody wants them
        self._arrived: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self.loop.create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        # Writing pauses while any data are left to write, not only while there are many.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(_Transport(transport))
        self._deadline.set(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.close()
        self._writing.close()
        super().connection_lost(exc)
        self._end_rest()
        self._gone.set_result(None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing.set(ANSWER_SECONDS)

    def resume_writing(self) -> None:
        self._writing.set(None)
        super().resume_writing()

    def room(self) -> bytearray | memoryview:
        """Return the buffer for the next read of the socket."""
        if self._place:
            return self._place
        self._piece = bytearray(min(PIECE_BYTES, self._missing or PIECE_BYTES))
        return self._piece

    def take(self, count: int) -> None:
        if self._missing:
            self._take_rest(count)
        else:
            piece, self._piece = self._piece, bytearray()
            self._receive(memoryview(piece)[:count])
        # Any byte ends uvicorn's wait for the next request, but an empty line begins none.
        idle = self.timeout_keep_alive_task is None and self._answered
        if idle and not self._deadline.is_set:
            self._deadline.set(HEAD_SECONDS)

    def _receive(self, data: memoryview) -> None:
        if self._refused:
            return
        before = self._phase, self._body_bytes
        self.data_received(data)
        if before == (self._phase, self._body_bytes):
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES and not self._refused:
            part = "trailers" if self._phase % 2 else "head"
            self.send_400_response(f"the {part} of the request has more than {HEAD_BYTES} bytes")
        if self._length and self._phase % 2 and self.cycle.body and not self._answered:
            # Until the application asks for more, or provides memory for the rest.
            self.flow.pause_reading()

    async def _read_rest(self, place: memoryview) -> int:
        self._place, self._missing = place, place.nbytes
        self._arrived = self.loop.create_future()
        self.flow.resume_reading()  # it is paused if the application waited for the first piece
        try:
            await self._arrived
        finally:
            self._place = None  # later data are dropped
        return place.nbytes - self._missing

    def _take_rest(self, count: int) -> None:
        self._unset_keepalive_if_required()
        self._missing -= count
        if self._place:
            self._place = self._place[count:]
        if not self._missing:
            # The old parser still waits for the rest of the body.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.on_message_complete()
            self._end_rest()

    def _end_rest(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._deadline.set(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase % 2 == 0:  # nobody reads trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many pipelined requests")  # the parser refuses all that follow
        super().on_headers_complete()
        headers = dict(self.headers)
        keep_next = cast(_Transport, self.transport).keep_next
        self.scope["extensions"] = {KEEP_NEXT: keep_next, GONE: self._gone}
        if b"transfer-encoding" in headers or self.parser.should_upgrade():
            self._length = 0
        else:
            self._length = int(headers.get(b"content-length", 0))
            self.scope["extensions"][REST] = self._read_rest
        self._phase += 1
        self._head_bytes = 0
        self._deadline.set(BODY_SECONDS)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase += 1
        self._head_bytes = 0
        self._deadline.set(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that are no HTTP, with an error of the Open Inference Protocol, and hang up.

        If answers to earlier requests are due, they are sent instead of this error, which a client
        would take for one of them.
        """
        self._refused = True
        if self._phase % 2 == 0 and not self._answered:
            self.cycle.keep_alive = False
            return
        if self._phase % 2 == 0 or not (self.pipeline or self.cycle.response_started):
            content = orjson.dumps({"error": msg})
            head = (
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
        self.transport.close()

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _late(self) -> None:
        """Hang up, unless the client waits for an answer."""
        cycle = self.cycle
        computing = cycle is not None and not (cycle.response_complete or cycle.more_body)
        if computing or self.pipeline:
            # The client is ahead: it must get the answer to the request before this one.
            self._deadline.set(HEAD_SECONDS)
        else:
            self.transport.close()


class Deadline:
    """Calls a function at a deadline, which may be changed any number of times before.

    Its one timer checks when it ends whether the deadline was put off, which is faster than to make
    and cancel a timer in each step of each request. The function may set another deadline.
    """

    __slots__ = ("_end", "_late", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[], None]) -> None:
        self._loop, self._late = loop, late
        self._end: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._end is not None

    def set(self, seconds: float | None) -> None:
        """Set the deadline to so many seconds from now, or remove it."""
        if seconds is None:
            self._end = None
            return
        self._end = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._end:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._start(self._end)

    def close(self) -> None:
        """Remove the deadline, and drop the timer with its reference to the function."""
        self._end = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, end: float) -> None:
        self._timer = self._loop.call_at(end, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._end is None:
            return
        if self._end > self._loop.time():
            self._start(self._end)
            return
        self._end = None
        self._late()
