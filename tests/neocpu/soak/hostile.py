"""Hostile requests in random order: ``python hostile.py HOST PORT MODEL SEED COUNT RATE``.

It prints as JSON how often each attack got each status; null means that a reading client got no
answer, and `UNREAD` stands for clients that do not read.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

THREADS: Final = 8
UNREAD: Final = "unread"
SHAPE: Final = [4, 64]
COUNT: Final = 256
MUCH: Final = 1 << 19
"""The bytes of an endless request: more than a server reads at once."""
PROMPT_SECONDS: Final = 0.3
"""The seconds that a client waits for an answer before it closes its sending side; a server takes
a half-closed connection for a client that has gone, and does not compute for it."""

Random: TypeAlias = random.Random
Attack: TypeAlias = Callable[["Target", Random], bytes]


class Target:
    """The address and the path of requests."""

    def __init__(self, host: str, port: int, model: str) -> None:
        self.address = (host, port)
        self.path = f"/v2/models/{model}/infer"

    def post(self, content: bytes, *lines: str, path: str | None = None) -> bytes:
        """Return a request with a body, and with further header lines."""
        length = (
            ()
            if any("ength" in line or "oding" in line for line in lines)
            else (f"Content-Length: {len(content)}",)
        )
        head = [f"POST {path or self.path} HTTP/1.1", "Host: x", *length, *lines, "", ""]
        return "\r\n".join(head).encode("latin-1") + content


def good(**changes: object) -> bytes:
    """Return a valid body with some changes."""
    entry = {"name": "x", "datatype": "FP32", "shape": SHAPE, "data": [0.5] * COUNT}
    return json.dumps({"inputs": [{**entry, **changes}]}).encode()


def malformed(target: Target, rng: Random) -> bytes:
    text = bytearray(good())
    for _ in range(rng.randint(1, 5)):
        text[rng.randrange(len(text))] = rng.randrange(256)
    return target.post(bytes(text))


def nested(target: Target, rng: Random) -> bytes:
    depth = rng.choice((100, 1000, 20_000))
    opening = rng.choice(("[", '{"inputs":', '{"a":['))
    return target.post(opening.encode() * min(depth, 60_000 // len(opening)))


def huge_numbers(target: Target, rng: Random) -> bytes:
    number = rng.choice(("1e400", "-1e999", "9" * 4000, "1" + "0" * 300, "1e-9999", "NaN", "1E+"))
    return target.post(good(data="DATA").replace(b'"DATA"', f"[{number}]".encode()))


def extreme_values(target: Target, rng: Random) -> bytes:
    special = (0.0, -0.0, 3.4e38, -3.4e38, 1e-45, float(2**31), -1.0)
    return target.post(good(data=[rng.choice(special) for _ in range(COUNT)]))


def wrong_shape(target: Target, rng: Random) -> bytes:
    shapes = ([4], [64, 4], [0, 64], [-4, -64], [1 << 62, 4], [4, 64, 1], ["4", 64], [4.0, 64], {})
    return target.post(good(shape=rng.choice(shapes)))


def wrong_type(target: Target, rng: Random) -> bytes:
    kinds = ("FP64", "INT64", "BYTES", "fp32", "", None, 7, "\u0000", "x" * 5000, ["FP32"])
    return target.post(good(datatype=rng.choice(kinds)))


def wrong_data(target: Target, rng: Random) -> bytes:
    data = ("x", None, [[]] * COUNT, [None] * COUNT, ["1"] * COUNT, [True] * COUNT, [1] * 9999, {})
    return target.post(good(data=rng.choice(data)))


def wrong_fields(target: Target, rng: Random) -> bytes:
    documents = (
        {},
        [],
        {"inputs": {}},
        {"inputs": [None]},
        {"inputs": [{"name": "../../etc/passwd"}]},
        {"inputs": [{"name": "x", "parameters": {"binary_data_size": 1 << 70}}]},
        {"inputs": [{"name": "x", "parameters": {"shared_memory_region": "/dev/mem"}}]},
        {"id": {"a": 1}, "inputs": []},
        {"inputs": [{"name": "x"}] * 3000},
    )
    return target.post(json.dumps(rng.choice(documents)).encode())


def binary(target: Target, rng: Random) -> bytes:
    size, sent = rng.choice(((1024, 1024), (1024, 10), (10, 1024), (-1, 8), (1 << 40, 8)))
    parameters = {"binary_data_size": size}
    entry = {"name": "x", "datatype": "FP32", "shape": SHAPE, "parameters": parameters}
    text = json.dumps({"inputs": [entry]}).encode()
    length = len(text) + rng.choice((0, 0, 0, 1, -1, 10**6))
    data = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\xc0\x7f", b"\0\0\x80\xff")) * (sent // 4)
    whole = len(text) + len(data)
    return target.post(
        text + data, f"Inference-Header-Content-Length: {length}", f"Content-Length: {whole}"
    )


def oversized(target: Target, rng: Random) -> bytes:
    size = rng.choice((1 << 20, 1 << 40, 1 << 62, 10**19 - 1))
    return target.post(b"", f"Content-Length: {size}")


def smuggled(target: Target, rng: Random) -> bytes:
    inner = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    lines = rng.choice(
        (
            ("Content-Length: 4", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "Content-Length: 4"),
            ("Content-Length: 4", "Content-Length: 40"),
            ("Transfer-Encoding: chunked, identity",),
            ("Transfer-Encoding: xchunked",),
            ("Transfer-Encoding : chunked",),
            ("Transfer-Encoding:\tchunked", "Transfer-Encoding: x"),
            ("Content-Length: +4",),
            ("Content-Length: 4, 4",),
            ("Content-Length:\r\n 4",),
        )
    )
    return target.post(b"0\r\n\r\n" + inner, *lines)


def bad_chunks(target: Target, rng: Random) -> bytes:
    size = rng.choice(
        (b"-1", b"ffffffffffffffff", b"7fffffffffffffff", b"0x4", b"zz", b"", b"4;" + b"x" * 900)
    )
    content = size + b'\r\n{"a"\r\n0\r\n\r\n'
    return target.post(content, "Transfer-Encoding: chunked")


def header_bomb(target: Target, rng: Random) -> bytes:
    if rng.random() < 0.5:
        lines = [f"X-{i}: {'a' * 50}" for i in range(rng.choice((100, 3000)))]
    else:
        lines = ["X-Long: " + "a" * rng.choice((9000, 100_000))]
    return target.post(good(), *lines)


def odd_heads(target: Target, rng: Random) -> bytes:
    return rng.choice(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /v2\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\0" * 500,
            b"GET  /v2  HTTP/1.1\r\n\r\n",
            b"GET /v2 HTTP/1.1\r\nHost : x\r\n\r\n",
            b"GET /v2 HTTP/1.1\nHost: x\n\n",
            b"DELETE /v2/models/linear HTTP/1.1\r\nHost: x\r\n\r\n",
            b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /v2 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            b"POST /v2 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        )
    )


def paths(target: Target, rng: Random) -> bytes:
    path = rng.choice(
        (
            "/../../etc/passwd",
            "/v2/models/..%2f..%2fetc/infer",
            "/v2/models/%00/infer",
            "/v2/models/" + "x" * 30_000 + "/infer",
            "/v2/models/linear/versions/99999999999/infer",
            "//v2//models",
            "/v2/models/%ff%fe/infer",
            "http://elsewhere/v2",
            "/v2/models/linear/infer?" + "a=1&" * 5000,
        )
    )
    return target.post(good(), path=path)


def old_http(target: Target, rng: Random) -> bytes:
    return target.post(good()).replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def pipelined(target: Target, rng: Random) -> bytes:
    return target.post(rng.choice((good(), b"{}"))) * rng.randint(2, 20)


def endless_trailers(target: Target, rng: Random) -> bytes:
    start, unit = rng.choice(((b"0\r\n", b"a:b\r\n"), (b"0\r\na: ", b"a"), (b"9;", b"a")))
    return target.post(start + unit * (MUCH // len(unit)), "Transfer-Encoding: chunked")


def empty_lines(target: Target, rng: Random) -> bytes:
    return target.post(good()) + b"\r\n" * rng.choice((1, 100, MUCH // 2))


def flood(target: Target, rng: Random) -> bytes:
    request = rng.choice((b"GET / HTTP/1.1\r\n\r\n", b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"))
    return request * (MUCH // len(request))


def compressed(target: Target, rng: Random) -> bytes:
    return target.post(b"\x1f\x8b" + bytes(50), "Content-Encoding: gzip")


ATTACKS: Final[tuple[Attack, ...]] = (
    *(malformed, nested, huge_numbers, extreme_values, wrong_shape, wrong_type, wrong_data),
    *(wrong_fields, binary, oversized, smuggled, bad_chunks, header_bomb, odd_heads, paths),
    *(old_http, pipelined, endless_trailers, empty_lines, flood, compressed),
)
WAYS: Final = ("read", "read", "read", "vanish", "reset", "half", "slow", "deaf")
"""A client reads the answer, leaves at a random byte or after the request, or never reads."""


def send(target: Target, data: bytes, way: str, rng: Random) -> int | None:
    """Send a request in one of `WAYS`; return the status of the answer."""
    with socket.create_connection(target.address, timeout=10) as client:
        try:
            if way == "read":
                return _read(client, data)
            sent = data if way in ("reset", "deaf") else data[: rng.randrange(len(data) + 1)]
            if way == "slow":
                for begin in range(0, min(len(sent), 5)):
                    client.sendall(sent[begin : begin + 1])
                    time.sleep(rng.random() * 0.05)
            else:
                client.sendall(sent)
            if way == "deaf":
                time.sleep(rng.random() * 0.3)
            if way == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, ValueError):
            return None
    return None


def _read(client: socket.socket, data: bytes) -> int | None:
    client.sendall(data)
    client.settimeout(PROMPT_SECONDS)
    try:
        start = client.recv(64)
    except TimeoutError:
        start = b""
    client.shutdown(socket.SHUT_WR)
    client.settimeout(10)
    start = start or client.recv(64)
    while client.recv(1 << 16):
        pass
    return int(start.split()[1]) if start.startswith(b"HTTP/") else None


def attack(target: Target, seed: int, count: int, rate: float) -> dict[str, dict[str, int]]:
    """Send ``count`` requests, about ``rate`` a second; return the number of each answer."""
    found: Counter[tuple[str, int | str | None]] = Counter()
    numbers = iter(range(count))
    lock = threading.Lock()
    begin = time.monotonic()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            rng = random.Random(seed * 1_000_003 + number)
            chosen = rng.choice(ATTACKS)
            data, way = chosen(target, rng), rng.choice(WAYS)
            status: int | str | None
            try:
                status = send(target, data, way, rng)
                if way != "read":
                    status = UNREAD
            except OSError:
                status = -1
            with lock:
                found[chosen.__name__, status] += 1

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table: dict[str, dict[str, int]] = {}
    for (name, status), times in sorted(found.items(), key=str):
        table.setdefault(name, {})[status if status == UNREAD else json.dumps(status)] = times
    return table


if __name__ == "__main__":
    # Elsewhere, attackers take no CPU of the server's machine.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    host, port, model, seed, count, rate = sys.argv[1:]
    print(json.dumps(attack(Target(host, int(port), model), int(seed), int(count), float(rate))))
