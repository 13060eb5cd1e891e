"""The server's offers to an application beyond ASGI."""

import asyncio
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("httptools")
import uvloop
from http_exchange import CHUNKED, GET, answer, connected, exchange, in_one_place, post

from neocpu.serving import http_protocol
from neocpu.serving.extensions import GONE, KEEP_NEXT, REST

pytestmark = pytest.mark.usefixtures("short")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("together", [False, True])
def test_bodies_are_read_to_one_place(run, together):
    """The rest of each body is read, and no byte of the next request."""
    random = np.random.default_rng(0)
    piece = http_protocol.PIECE_BYTES
    sizes = (0, 1, piece - 70, piece, piece + 1, 3 * piece - 1, 500_009, 2)
    bodies = [random.bytes(size) for size in sizes]
    parts = [post(body) for body in bodies]
    sent = [b"".join(parts)] if together else parts
    found = exchange(in_one_place, *sent, pause=0.02, keep_alive=0.3, run=run)
    for body in bodies:
        head, _, found = found.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert found.startswith(body)
        found = found[len(body) :]
    assert not found


async def test_a_client_that_waits_for_100_continue():
    async with connected(in_one_place) as (reader, writer), asyncio.timeout(30):
        body = bytes(range(256)) * 1000
        head = post(body, b"Expect: 100-continue\r\n").removesuffix(body)
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(body)) == body


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_rest_of_a_body_may_be_for_nobody(run):
    """It is read and dropped, and the next request is answered."""
    body = b"1" * 200_000
    place = bytearray(len(body))

    async def impatient(scope, receive, send):
        if scope["method"] == "POST":
            first = await receive()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await scope["extensions"][REST](memoryview(place)[len(first["body"]) :])
        await answer(send)

    parts = post(body)[:100_000], post(body)[100_000:] + GET
    found = exchange(impatient, *parts, pause=0.1, keep_alive=0.2, run=run)
    assert found.count(b"HTTP/1.1 200") == 2
    assert 0 < place.count(b"1") < 100_000


async def test_the_rest_of_a_body_that_ends_early():
    ended = []

    async def app(scope, receive, send):
        await in_one_place(scope, receive, send)
        ended.append(scope["method"])

    async with connected(app) as (_, writer), asyncio.timeout(30):
        writer.write(post(bytes(100_000))[:50_000])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()
        while not ended:
            await asyncio.sleep(0.01)


def test_of_chunks_nobody_knows_the_rest():
    told = []

    async def app(scope, receive, send):
        told.append([*scope["extensions"]])
        await answer(send)

    exchange(app, CHUNKED + b"0\r\n\r\n", keep_alive=0.1)
    assert told == [[KEEP_NEXT, GONE]]


async def test_who_goes_is_noticed():
    noticed = []

    async def app(scope, receive, send):
        gone = scope["extensions"][GONE]
        noticed.append(gone.done())
        await gone
        noticed.append(gone.done())

    async with connected(app) as (_, writer), asyncio.timeout(30):
        writer.write(GET)
        while not noticed:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while len(noticed) < 2:
            await asyncio.sleep(0.01)
    assert noticed == [False, True]


@pytest.mark.parametrize("body", [b"", b"whole", bytes(3_000_000)])
def test_a_head_goes_out_with_the_body(body, monkeypatch):
    written = []
    write = http_protocol._Transport.write

    async def app(scope, receive, send):
        scope["extensions"][KEEP_NEXT]()
        head = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def noted(self, data):
        write(self, data)
        written.append((len(data), self._kept))

    monkeypatch.setattr(http_protocol._Transport, "write", noted)
    found = exchange(app, GET * 2, keep_alive=0.1)
    assert found.count(b"HTTP/1.1 200") == 2
    assert found.endswith(b"\r\n\r\n" + body)
    heads, bodies = written[::3], written[1::3]
    assert all(kept.startswith(b"HTTP/1.1 200") for _, kept in heads)
    assert bodies == [(len(body), b"")] * 2
