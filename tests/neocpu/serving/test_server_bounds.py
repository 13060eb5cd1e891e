"""Bounds on bodies and on bytes in flight, in the server without HTTP."""

import asyncio
import json
import threading
from contextlib import suppress

import pytest
from fake_modules import GOOD, ask, metrics, run_pending, start

from neocpu.foundation.errors import ArtifactError
from neocpu.serving import server as serving_server
from neocpu.serving.refusals import OverloadedError, RequestError, SlowRequestError, TooLargeError
from neocpu.serving.request import parse_request


@pytest.mark.parametrize(
    ("content", "length", "error"),
    [
        (GOOD, 101, TooLargeError),
        (GOOD + bytes(100), None, TooLargeError),
        (GOOD, len(GOOD) + 1, RequestError),
        (GOOD[:-1], len(GOOD), RequestError),
        (b"", 0, RequestError),
    ],
)
async def test_bodies_of_another_size(modules, content, length, error):
    server = start(instances=1, threads=1, max_request_bytes=100)
    with pytest.raises(error) as caught:
        await ask(server, content=content, length=length)
    assert caught.value.status == error.status


@pytest.mark.parametrize(("length", "status"), [((1 << 16) + 64, 400), ((1 << 16) + 65, 413)])
async def test_bodies_may_be_as_large_as_the_inputs_in_json(modules, length, status):
    with pytest.raises(RequestError) as caught:
        await ask(start(instances=1, threads=1), length=length)
    assert caught.value.status == status


@pytest.mark.parametrize("spaces", [0, 1 << 20])
async def test_others_are_served_while_much_json_is_parsed(modules, monkeypatch, spaces):
    """One such request is parsed at a time; short JSON is parsed at once."""
    step, parsing, most = threading.Event(), [], []
    waited = []

    def parse(*arguments):
        parsing.append(1)
        most.append(len(parsing))
        if spaces:
            waited.append(step.wait(3))
        parsing.pop()
        return parse_request(*arguments)

    monkeypatch.setattr(serving_server, "parse_request", parse)
    server = start(instances=1, threads=1, max_request_bytes=2 << 20)
    content = GOOD + b" " * spaces
    asked = [asyncio.ensure_future(ask(server, content=content, size=1 << 20)) for _ in range(2)]
    await run_pending()
    step.set()
    for one in asked:
        while not modules.all[0].calls:
            await asyncio.sleep(0.001)
        modules.all[0].finish()
        await one
    assert most == [1, 1]
    assert all(waited)


async def test_a_body_that_never_ends(modules):
    server = start(instances=1, threads=1, body_seconds=0.01)
    with pytest.raises(SlowRequestError):
        await ask(server, pause=asyncio.Event())


async def test_bytes_in_flight_are_bounded_and_counted(modules):
    held = []
    server = start(instances=1, max_bytes_in_flight=len(GOOD) + 8 + 60)
    first = ask(server, length=len(GOOD))
    await run_pending()
    held.append(metrics(server))
    for length in (len(GOOD), None):
        with pytest.raises(OverloadedError, match="max-bytes-in-flight") as caught:
            await ask(server, length=length)
        assert caught.value.retry_after > 0
    modules.all[0].finish()
    await first
    held.append(metrics(server))
    last = ask(server, length=len(GOOD))
    await run_pending()
    modules.all[0].finish()
    await last
    during, after = held
    assert during['neocpu_bytes_in_flight{direction="request"}'] == f"{len(GOOD)}.0"
    assert during['neocpu_bytes_in_flight{direction="answer"}'] == "8.0"
    assert during["neocpu_bytes_in_flight_limit"] == f"{len(GOOD) + 68}.0"
    for way in ("request", "answer"):
        assert after[f'neocpu_bytes_in_flight{{direction="{way}"}}'] == "0.0"


async def test_a_request_alone_may_be_larger_than_the_bound(modules):
    server = start(instances=1, max_bytes_in_flight=1)
    answer = ask(server)
    await run_pending()
    modules.all[0].finish()
    assert json.loads((await answer).body)["outputs"][0]["data"] == [2.0, 4.0]


@pytest.mark.parametrize("how", ["error", "cancelled", "malformed"])
async def test_nothing_is_kept_for_a_request_that_fails(modules, how):
    server = start(instances=1)
    answer = ask(server, content=b"{}" if how == "malformed" else GOOD)
    await run_pending()
    if how == "cancelled":
        answer.cancel()
    elif how == "error":
        modules.all[0].finish(ArtifactError("damaged"))
    with suppress(RequestError, asyncio.CancelledError):
        await answer
    found = metrics(server)
    assert found['neocpu_bytes_in_flight{direction="request"}'] == "0.0"
    assert found['neocpu_bytes_in_flight{direction="answer"}'] == "0.0"
