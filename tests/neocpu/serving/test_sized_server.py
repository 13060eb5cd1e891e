"""A server without HTTP of an artifact whose requests choose a height and a width."""

import asyncio
import json

import numpy as np
import pytest
import sized_artifact
from prometheus_client import generate_latest
from v2_requests import body, tensor

from neocpu.serving.batches.batching import Batching
from neocpu.serving.refusals import RequestError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferCall, InferenceServer, Limits


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sized_artifact.write(tmp_path_factory.mktemp("sized"))


@pytest.fixture(params=[None, Batching(8, 0.001)], ids=["alone", "max-batch"])
def server(path, request):
    limits = Limits(threads=1, instances=2, batching=request.param)
    server = InferenceServer([ModelEntry("sized", path)], limits)
    server.start()
    yield server
    server.close()


async def stays():
    await asyncio.Event().wait()


async def ask(server, inputs):
    async def chunks():
        yield body(*(tensor(name, each) for name, each in zip("xm", inputs, strict=True)))

    call = InferCall(model="sized", version=None, length=None, json_bytes=None)
    answer, share = await server.infer(call, chunks(), stays)
    share.close()
    return json.loads(answer.body)


async def test_requests_of_different_sizes_are_answered_side_by_side(server):
    sizes = [(2 + 2 * (number % 5), 3 + number % 3) for number in range(24)]
    asked = [sized_artifact.inputs_of(*size, seed) for seed, size in enumerate(sizes)]
    answers = await asyncio.gather(*(ask(server, inputs) for inputs in asked))
    for inputs, answer in zip(asked, answers, strict=True):
        for found, expected in zip(
            answer["outputs"], sized_artifact.reference(*inputs), strict=True
        ):
            assert tuple(found["shape"]) == expected.shape
            np.testing.assert_allclose(found["data"], expected.reshape(-1), rtol=1e-4, atol=1e-4)
    text = generate_latest(server.metrics.registry).decode()
    labels = 'model="sized",size="h=2,w=3",version="1"'
    assert f"neocpu_size_inference_seconds_count{{{labels}}} 2.0" in text


async def test_metadata_and_shapes_out_of_range(server):
    found = server.models.metadata("sized", None)
    assert [each["shape"] for each in found["inputs"]] == [[1, 2, -1, -1], [1, -1]]
    assert [each["shape"] for each in found["outputs"]] == [[1, 2, -1, -1], [1, 2]]
    x, m = np.zeros((1, 2, 9, 5), "float32"), np.zeros((1, 4), "float32")
    with pytest.raises(RequestError, match=r"extent 2 is 9.*the nearest is x\[1,2,10,5\]") as told:
        await ask(server, (x, m))
    assert told.value.status == 400
