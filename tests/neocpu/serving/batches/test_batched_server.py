"""A server without HTTP that computes requests jointly, by an artifact of four rows."""

import asyncio
import json

import numpy as np
import pytest
from prometheus_client import generate_latest
from v2_requests import binary_tensor, body, tensor

import neocpu
from neocpu.serving.batches.batching import Batching
from neocpu.serving.refusals import AbandonedError, OverloadedError, RequestError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferCall, InferenceServer, Limits


@pytest.fixture(scope="module")
def expected(linear):
    """Return the outputs of rows, computed with zeros in the others."""
    with neocpu.load(linear.path, 1) as module:

        def alone(x):
            rows = [module(np.concatenate([row[None], np.zeros((3, 64), "float32")])) for row in x]
            return np.stack([one[0] for one in rows])

        yield alone


def start(linear, *batching, **limits):
    limits = Limits(threads=1, batching=Batching(*batching), **limits)
    server = InferenceServer([ModelEntry("linear", linear.path)], limits)
    server.start()
    return server


@pytest.fixture
def server(linear):
    server = start(linear, 8, 0.001, instances=2)
    yield server
    server.close()


def rows(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 64)).astype("float32")


async def stays():
    await asyncio.Event().wait()


async def ask(server, entry, gone=stays):
    async def chunks():
        yield body(entry)

    answer, share = await server.infer(
        InferCall(model="linear", version=None, length=None, json_bytes=None), chunks(), gone
    )
    share.close()
    return json.loads(answer.body)


def outputs(document):
    (y,) = document["outputs"]
    return np.array(y["data"], "float32").reshape(y["shape"])


async def test_answers_are_bitwise_what_each_request_alone_would_get(server, expected):
    asked = [rows(1 + seed % 8, seed) for seed in range(24)]
    answers = await asyncio.gather(*(ask(server, tensor("x", x)) for x in asked))
    for x, answer in zip(asked, answers, strict=True):
        found = outputs(answer)
        assert found.shape == (len(x), 33)
        assert found.tobytes() == expected(x).tobytes()
    text = generate_latest(server.metrics.registry).decode()
    of_linear = '{model="linear",version="1"}'
    total = sum(1 + seed % 8 for seed in range(24))
    assert f"neocpu_batch_rows_sum{of_linear} {total}.0" in text
    assert f"neocpu_queue_seconds_count{of_linear} 24.0" in text
    assert f"neocpu_requests_in_flight{of_linear} 0.0" in text


def test_metadata_say_that_rows_are_free(server):
    found = server.models.metadata("linear", None)
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}]
    assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 33]}]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (tensor("x", rows(9)), "from 1 to 8 rows of each input, got 9"),
        (tensor("x", rows(1), shape=[0, 64], data=[]), "from 1 to 8 rows of each input, got 0"),
        (tensor("x", rows(1), shape=[True, 64]), "got True"),
        (tensor("x", rows(1), shape=["1", 64]), "got '1'"),
        (tensor("x", rows(1), shape=[]), "shape"),
        (tensor("x", rows(1), shape=[1, 63]), r"the model takes shape \[1, 64\]"),
        (tensor("x", rows(2), shape=[1, 64]), "64 elements"),
        (tensor("x", rows(1), shape=[2, 64]), "128 elements"),
        (binary_tensor("x", rows(1)), "only 0 bytes are left"),
    ],
)
async def test_a_bad_request_hurts_no_other(server, expected, entry, words):
    x = rows(3)
    good = [ask(server, tensor("x", x)) for _ in range(3)]
    found = await asyncio.gather(*good, ask(server, entry), return_exceptions=True)
    *good, error = found
    assert isinstance(error, RequestError)
    assert error.status == 400
    with pytest.raises(RequestError, match=words):
        raise error
    for answer in good:
        assert outputs(answer).tobytes() == expected(x).tobytes()


async def test_infinities_of_one_request_stay_its_own(server, expected):
    model = server.models.find("linear")
    x, bad = rows(1), np.full((1, 64), np.inf, "float32")
    bad[0, ::2] = np.nan
    first, _, last = await asyncio.gather(*(model.infer(0, {"x": one}) for one in (x, bad, x)))
    for found in (first, last):
        assert found["y"].tobytes() == expected(x).tobytes()


def test_a_client_that_goes_away_takes_nobody_along(server, expected):
    async def leaves():
        pass

    async def scene():
        x = rows(2)
        asked = [ask(server, tensor("x", x)), ask(server, tensor("x", x), gone=leaves)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return x, found, server.in_flight

    for _ in range(50):  # a run may be over before anybody looks whether the client is there
        x, (answer, error), in_flight = asyncio.run(scene())
        assert outputs(answer).tobytes() == expected(x).tobytes()
        assert in_flight == 0
        if isinstance(error, AbandonedError):
            return
    pytest.fail("no client was missed")


async def test_more_than_may_wait_are_refused(linear):
    server = start(linear, 4, 60.0, queue=2)
    asked = [asyncio.ensure_future(ask(server, tensor("x", rows(1)))) for _ in range(3)]
    asked += [asyncio.ensure_future(ask(server, tensor("x", rows(4)))) for _ in range(4)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    server.close()
    refused = [one for one in found if isinstance(one, Exception)]
    assert len(refused) == 1
    with pytest.raises(OverloadedError, match="2 requests wait for model 'linear'"):
        raise refused[0]


async def test_closing_answers_what_waits(linear, expected):
    """It is answered although its delay is far from over."""
    server = start(linear, 64, 3600.0)
    x = rows(2)
    asked = [asyncio.ensure_future(ask(server, tensor("x", x))) for _ in range(3)]
    await asyncio.sleep(0.01)
    await asyncio.to_thread(server.close)
    answers = await asyncio.gather(*asked)
    for answer in answers:
        assert outputs(answer).tobytes() == expected(x).tobytes()
