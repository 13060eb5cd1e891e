"""Bodies, received into one buffer."""

import asyncio
import importlib.util
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neocpu.serving import body
from neocpu.serving.body import read_body
from neocpu.serving.refusals import RequestError, SlowRequestError, TooLargeError


async def chunks(parts):
    for part in parts:
        yield part


def read(parts, length=None, limit=1 << 20, json_bytes=None):
    return asyncio.run(
        read_body(chunks(parts), length, limit=limit, seconds=60, json_bytes=json_bytes)
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=50)), st.booleans(), st.none() | st.integers(0, 300))
def test_chunks_are_joined(parts, announced, json_bytes):
    whole = b"".join(parts)
    length = len(whole) if announced else None
    assert bytes(read(parts, length, json_bytes=json_bytes)) == whole


@pytest.mark.parametrize("length", [300_000, None])
def test_larger_than_the_first_buffer(length):
    parts = [bytes([number]) * 60_000 for number in range(5)]
    assert bytes(read(parts, length, json_bytes=77)) == b"".join(parts)


async def test_the_rest_is_received_where_it_is_kept():
    whole = bytes(range(200))

    async def rest(place):
        place[:] = whole[30:]
        return place.nbytes

    parts = chunks([whole[:30], b""])
    assert (
        bytes(await read_body(parts, 200, limit=200, seconds=60, json_bytes=7, rest=rest)) == whole
    )


def test_a_rest_that_does_not_come():
    async def scene():
        parts, rest = chunks([b"123"]), lambda _: asyncio.sleep(60)
        await read_body(parts, 9, limit=9, seconds=0.05, json_bytes=None, rest=rest)

    with pytest.raises(SlowRequestError, match=r"within 0\.05 s"):
        asyncio.run(scene())


def test_bodies_are_received_on_python_3_10_which_has_no_timeout(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    monkeypatch.delattr(asyncio, "timeout")
    found = importlib.util.spec_from_file_location("body_on_3_10", body.__file__)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.undo()

    async def scene(parts, seconds):
        return await module.read_body(parts, 4, limit=9, seconds=seconds, json_bytes=None)

    async def never():
        await asyncio.Event().wait()
        yield b""

    assert bytes(asyncio.run(scene(chunks([b"ab", b"cd"]), 60))) == b"abcd"
    with pytest.raises(SlowRequestError, match=r"within 0\.05 s"):
        asyncio.run(scene(never(), 0.05))


@pytest.mark.parametrize("json_bytes", [1, 77, 128, 200])
def test_tensors_lie_aligned_so_that_the_module_need_not_copy_them(json_bytes):
    received = read([bytes(json_bytes + 40)], json_bytes + 40, json_bytes=json_bytes)
    data = np.frombuffer(received[json_bytes:], np.float32)
    assert data.ctypes.data % 128 == 0


def test_nothing_is_read_of_what_is_announced_too_large():
    async def untouchable():
        pytest.fail("it was read")
        yield b""

    with pytest.raises(TooLargeError):
        asyncio.run(read_body(untouchable(), 11, limit=10, seconds=60, json_bytes=None))


@pytest.mark.parametrize(("sent", "announced"), [(9, 10), (11, 10)])
def test_another_length_than_announced(sent, announced):
    with pytest.raises(RequestError, match=f"{sent} of {announced} bytes"):
        read([bytes(sent)], announced)


def test_exactly_the_limit():
    assert read([bytes(5), bytes(5)], limit=10).nbytes == 10
    with pytest.raises(TooLargeError):
        read([bytes(5), bytes(6)], limit=10)
