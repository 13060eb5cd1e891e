"""Connections with slow, silent and abusive clients."""

import asyncio
import tracemalloc
from contextlib import suppress

import pytest

pytest.importorskip("httptools")
import uvloop
from http_exchange import (
    CHUNKED,
    GET,
    POST,
    after_the_body,
    answer,
    at_once,
    connected,
    exchange,
    in_one_place,
)

from neocpu.serving import http_protocol

pytestmark = pytest.mark.usefixtures("short")


@pytest.mark.parametrize("app", [after_the_body, in_one_place])
@pytest.mark.parametrize("sent", [b"", GET[:10], POST, POST + b"half"])
def test_who_stops_half_way_is_hung_up_on(app, sent):
    assert exchange(app, sent) == b""


def test_a_body_that_nobody_reads_ends_too():
    assert exchange(at_once, POST).startswith(b"HTTP/1.1 200")


def test_a_second_request_that_stops_half_way():
    found = exchange(after_the_body, GET, GET[:10])
    assert found.count(b"HTTP/1.1 200") == 1


def test_a_first_answer_that_takes_long_is_waited_for():
    async def slow(scope, receive, send):
        await asyncio.sleep(1)
        await answer(send)

    found = exchange(slow, GET, GET[:10])
    assert found.count(b"HTTP/1.1 200") == 1


def test_heads_of_any_size_are_not_kept(monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 60)
    long = b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000
    assert exchange(at_once, long, b"a" * 70_000, pause=0.05).startswith(b"HTTP/1.1 400")


def test_large_bodies_are_no_heads(monkeypatch):
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 60)
    size = 500_000
    post = POST.replace(b"9", b"%d" % size) + bytes(size)
    assert exchange(after_the_body, post * 3, GET[:10]).count(b"HTTP/1.1 200") == 3


async def never(scope, receive, send):
    await asyncio.Event().wait()


@pytest.mark.parametrize(("app", "status"), [(after_the_body, b"400"), (at_once, b"200")])
@pytest.mark.parametrize(
    ("start", "unit"),
    [(b"0\r\n", b"a:b\r\n"), (b"0\r\n", b"a"), (b"0\r\na: ", b"a"), (b"9;", b"a")],
)
def test_what_follows_a_body_without_end_is_refused(monkeypatch, app, status, start, unit):
    """Trailers, a long trailer or a chunk's extension get one answer at most."""
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 60)
    most = http_protocol.HEAD_BYTES // len(unit)
    found = exchange(app, CHUNKED + start, unit * most, unit * 20, pause=0.05)
    assert found.startswith(b"HTTP/1.1 " + status)
    assert found.count(b"HTTP/1.1") == 1


def test_trailers_are_read_over():
    """They are neither headers of this request nor of the next one."""
    seen = []

    async def app(scope, receive, send):
        await after_the_body(scope, receive, send)
        seen.append(sorted(name for name, _ in scope["headers"]))

    post = CHUNKED + b"1\r\nx\r\n0\r\nTrailer: 1\r\n\r\n"
    assert exchange(app, post, post, keep_alive=0.2).count(b"HTTP/1.1 200") == 2
    assert seen == [[b"host", b"transfer-encoding"]] * 2


STARTS = (b"", GET, POST, CHUNKED, CHUNKED + b"0\r\n", CHUNKED + b"9\r\n")
UNITS = (GET, b"\r\n", b"a:b\r\n", b"a", CHUNKED + b"0\r\n\r\n", b"1\r\na\r\n", b"0\r\na:b\r\n")


@pytest.mark.parametrize("app", [at_once, after_the_body, never])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("unit", UNITS)
def test_nothing_that_is_sent_without_end_is_kept(app, start, unit):
    """It does not matter what the bytes mean where they come."""

    async def scene():
        async with connected(app) as (reader, writer), asyncio.timeout(30):
            reading = asyncio.ensure_future(reader.read(1 << 20))
            tracemalloc.start()
            writer.write(start)
            with suppress(TimeoutError, ConnectionError):  # refused, or not read any more
                for _ in range(4):
                    writer.write(unit * ((1 << 18) // len(unit)))
                    async with asyncio.timeout(0.1):
                        await writer.drain()
                    await asyncio.sleep(0.005)  # for the server to read it
            held = tracemalloc.get_traced_memory()[0]
            writer.transport.abort()
            reading.cancel()
            return held

    try:
        assert asyncio.run(scene()) < 3 << 20
    finally:
        tracemalloc.stop()


def test_what_one_read_brings_is_parsed_no_further_than_the_bounds(monkeypatch):
    """Otherwise all other clients would wait for 50,000 trailers."""
    parsed = 0

    def on_header(protocol, name, value):
        nonlocal parsed
        parsed += len(b"a:b\r\n")

    monkeypatch.setattr(http_protocol.Connection, "on_header", on_header)
    with suppress(ConnectionResetError):  # refused while it still sends
        exchange(after_the_body, CHUNKED + b"0\r\n" + b"a:b\r\n" * 50_000)
    assert http_protocol.HEAD_BYTES / 2 < parsed
    assert parsed < http_protocol.HEAD_BYTES + 2 * http_protocol.PIECE_BYTES


@pytest.mark.parametrize("count", [2, 16, 17, 18, 500])
def test_pipelined_requests_are_answered_up_to_a_number(count):
    """The answers that are due come whole and in order, and nothing else does."""
    served = 0

    async def app(scope, receive, send):
        nonlocal served
        served += 1
        await answer(send)

    found = exchange(app, GET * count, keep_alive=0.2)
    assert found.count(b"HTTP/1.1 200") == served == min(count, http_protocol.MAX_PIPELINED + 1)
    assert found.count(b"HTTP/1.1") == served
    assert (b"connection: close" in found) == (count > http_protocol.MAX_PIPELINED + 1)


async def test_many_requests_one_after_another():
    """Requests that were answered are not counted."""
    async with connected(at_once) as (reader, writer), asyncio.timeout(30):
        for _ in range(3 * http_protocol.MAX_PIPELINED):
            writer.write(GET * 2)
            await reader.readuntil(b"0\r\n\r\n")
            await reader.readuntil(b"0\r\n\r\n")


def test_no_http_behind_a_request_does_not_take_its_answer():
    async def slow(scope, receive, send):
        await asyncio.sleep(0.1)
        await answer(send)

    found = exchange(slow, GET * 2 + b"no http\r\n\r\n", pause=0.05)
    assert found.count(b"HTTP/1.1 200") == found.count(b"HTTP/1.1") == 2
    assert found.count(b"connection: close") == 1


@pytest.mark.parametrize("idle", [b"\r\n", b"\r\n\r\n", b"\n"])
def test_empty_lines_keep_no_connection(idle):
    found = exchange(at_once, GET, *[idle] * 3, pause=0.05)
    assert found.count(b"HTTP/1.1") == 1
    assert exchange(at_once, GET, idle, GET, pause=0.05, keep_alive=0.2).count(b"HTTP/1.1 200") == 2


def test_a_body_that_ends_behind_its_answer_keeps_no_connection():
    assert exchange(at_once, POST, b"123456789", pause=0.05).count(b"HTTP/1.1 200") == 1


LARGE = 32 << 20  # more than the system's buffers hold


async def at_large(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(LARGE), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def test_who_does_not_read_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(http_protocol, "ANSWER_SECONDS", 0.3)
    ended = asyncio.Event()

    async def app(scope, receive, send):
        try:
            await at_large(scope, receive, send)
        finally:
            ended.set()

    async with connected(app) as (reader, writer), asyncio.timeout(30):
        writer.transport.pause_reading()
        writer.write(GET)
        await ended.wait()
        writer.transport.resume_reading()
        received = 0
        with suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                received += len(data)
    assert received < LARGE


async def test_who_reads_slowly_gets_all_of_it(monkeypatch):
    async with connected(at_large) as (reader, writer), asyncio.timeout(30):
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        received = 0
        while data := await reader.read(1 << 20):
            received += data.count(0)
            await asyncio.sleep(0.001)
    assert received == LARGE


def test_who_vanishes_before_the_answers_to_pipelined_requests(caplog):
    answers = 0

    async def app(scope, receive, send):
        nonlocal answers
        await receive()
        watch = asyncio.ensure_future(receive())  # as the server watches clients it computes for
        await asyncio.sleep(0.2)
        await answer(send)
        answers += 1
        watch.cancel()

    async def scene():
        async with connected(app) as (_, writer), asyncio.timeout(30):
            writer.write(GET * 3)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.transport.abort()
            while not answers and not caplog.records:
                await asyncio.sleep(0.01)

    uvloop.run(scene())
    assert not caplog.records
