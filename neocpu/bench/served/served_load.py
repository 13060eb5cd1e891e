"""Clients of a server, in a separate process: ``python -m neocpu.bench.served.served_load``.

Requests and replies are lines of JSON on standard input and output:

=============================================  ====================================================
``{"address": [host, port], "request": PATH,   ``{"seconds": [...], "per_answer": seconds}`` as
"clients": N, "duration": seconds}``           `counted` has them, ``{"cpu": seconds of this
                                               process for a request, "failed": [status of each
                                               that was none], "answers": [[body in hexadecimal,
                                               how often]], "others": those unlike the first
                                               `KINDS`}``
=============================================  ====================================================

The file holds the bytes of an HTTP request, head and body. Each client is a thread that keeps its
connection and sends the next request when it has read the answer; the kernel sends it from the
file, and nothing is parsed that need not be, because what clients take is counted as the server's.
"""

from __future__ import annotations

import gc
import json
import math
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from neocpu.bench.engines.contender_process import die_with_parent
from neocpu.foundation.json_codec import JsonObject

TIMEOUT: Final = 60  # seconds that a client waits for the server to read or to write
KINDS: Final = 8  # most different answers that a client keeps: plans of batches differ in rounding
_LENGTH: Final = b"\r\ncontent-length: "
_RECEIVE: Final = 1 << 16


class Request(NamedTuple):
    """The times of a request's first byte sent and its answer's last byte received, in seconds."""

    sent: float
    answered: float

    @property
    def seconds(self) -> float:
        return self.answered - self.sent


class Counted(NamedTuple):
    """The counted requests of clients that wait for each other."""

    seconds: tuple[float, ...]  # the time of each request that was sent within the counted time
    per_answer: float  # counted time over counted requests, in parts too


def counted(clients: Sequence[Sequence[Request]], stop: float) -> Counted:
    """Count the requests of the time in which all clients work.

    That is from when each has had an answer to when they stop asking; all time if none is sent.
    """
    requests = [each for one in clients for each in one]
    if not requests:
        return Counted((), math.inf)
    start = max(one[0].answered for one in clients if one)
    if not any(start <= each.sent < stop for each in requests):
        start = min(each.sent for each in requests)
        stop = max(each.answered for each in requests)
    parts = (
        max(0.0, min(each.answered, stop) - max(each.sent, start)) / each.seconds
        for each in requests
    )
    return Counted(
        tuple(each.seconds for each in requests if each.sent >= start), (stop - start) / sum(parts)
    )


@dataclass(slots=True)
class Kind:
    """Equal answers, and their number."""

    body: bytes
    count: int = 1


@dataclass(slots=True, kw_only=True)
class Client:
    """One connection and its answers; ``request`` is the descriptor of a file."""

    address: tuple[str, int]
    request: int
    requests: list[Request] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    others: int = 0
    error: OSError | None = None

    def work(self, begin: threading.Barrier, duration: float) -> None:
        """Send one request after another until the time is over, but at least one."""
        try:
            with socket.create_connection(self.address, TIMEOUT) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(None)  # Python's own would poll before each call
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", TIMEOUT, 0))
                size = os.fstat(self.request).st_size
                begin.wait()
                end = time.perf_counter() + duration
                while (start := time.perf_counter()) < end or not self.requests:
                    offset = 0
                    while offset < size:
                        offset += os.sendfile(
                            connection.fileno(), self.request, offset, size - offset
                        )
                    status, body = _receive(connection)
                    self.requests.append(Request(start, time.perf_counter()))
                    self._judge(status, body)
        except OSError as error:
            begin.abort()
            self.error = error

    def _judge(self, status: int, body: bytes) -> None:
        if status != 200:
            self.failed.append(status)
            return
        for kind in self.kinds:
            if kind.body == body:
                kind.count += 1
                return
        if len(self.kinds) < KINDS:
            self.kinds.append(Kind(body))
        else:
            self.others += 1


def answer(order: JsonObject) -> JsonObject:
    """Run the clients of one order and return the reply. Raises OSError: a connection is lost."""
    host, port = order["address"]
    with Path(order["request"]).open("rb") as request:
        clients = [
            Client(address=(host, port), request=request.fileno()) for _ in range(order["clients"])
        ]
        stop, cpu = _work(clients, order["duration"])
    bodies: Counter[bytes] = Counter()
    for kind in (kind for one in clients for kind in one.kinds):
        bodies[kind.body] += kind.count
    found = counted([one.requests for one in clients], stop)
    return {
        "seconds": found.seconds,
        "per_answer": found.per_answer,
        "cpu": cpu / max(1, sum(len(one.requests) for one in clients)),
        "others": sum(one.others for one in clients),
        "failed": [status for one in clients for status in one.failed],
        "answers": [(body.hex(), count) for body, count in bodies.items()],
    }


def _work(clients: list[Client], duration: float) -> tuple[float, float]:
    """Let clients work at the same time; return the time when they stop, and their CPU seconds."""
    begin = threading.Barrier(len(clients) + 1)
    threads = [threading.Thread(target=one.work, args=(begin, duration)) for one in clients]
    for thread in threads:
        thread.start()
    try:
        begin.wait()
    except threading.BrokenBarrierError:
        pass  # the client that broke it says why
    start, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    cpu = time.process_time() - used
    for one in clients:
        if one.error:
            raise one.error
    return start + duration, cpu


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _part(connection)
    head, body = data[: end + 2].lower(), data[end + 4 :]
    start = head.index(_LENGTH) + len(_LENGTH)
    length = int(head[start : head.index(b"\r\n", start)])
    parts = [body]
    missing = length - len(body)
    while missing > 0:
        parts.append(_part(connection))
        missing -= len(parts[-1])
    return int(head.split(b" ", 2)[1]), b"".join(parts)


def _part(connection: socket.socket) -> bytes:
    part = connection.recv(_RECEIVE)
    if not part:
        raise ConnectionResetError("the server closed the connection")
    return part


def main() -> None:
    """Answer orders until standard input ends."""
    die_with_parent()
    gc.disable()  # a collection would be counted as the server's time
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except OSError as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
