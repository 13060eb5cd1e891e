"""An artifact for a set of shapes, served: requests of any shape, alone and in batches."""

import asyncio

import numpy as np
import pytest

import neocpu
from neocpu.bench.served.served_model import ServedReport, ServedRequest, measure_served
from neocpu.serving.batches.batching import Batching
from neocpu.serving.refusals import RequestError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.request import parse_document
from neocpu.serving.server import InferenceServer, Limits

pytest.importorskip("prometheus_client")


@pytest.fixture(params=[None, Batching(6, 0.001)], ids=["alone", "together"])
def server(sized, request):
    limits = Limits(instances=2, threads=1, batching=request.param)
    server = InferenceServer([ModelEntry("sized", sized.path)], limits)
    server.start()
    yield server
    server.close()


def parse(server, x, **changes):
    entry = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
    signatures = server.models.find("sized").signatures
    return parse_document({"inputs": [{**entry, **changes}]}, memoryview(b""), signatures)


def image(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


def answers(server, images):
    async def scene():
        model = server.models.find("sized")
        asked = [parse(server, x) for x in images]
        return await asyncio.gather(*(model.infer(one.signature, one.inputs) for one in asked))

    return asyncio.run(scene())


def test_requests_of_any_shape(server, sized):
    shapes = [(1, 3, 9, 7), (3, 3, 9, 7), (1, 3, 7, 9), (2, 3, 16, 5)]
    images = [image(*shape) for shape in 3 * shapes]
    with neocpu.load(sized.path, 1) as module:
        for x, found in zip(images, answers(server, images), strict=True):
            for name, expected in module.run({"x": x}).items():
                assert found[name].shape == expected.shape
                np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_batches_without_a_plan_are_served(server, sized):
    if not server.limits.batching:
        with pytest.raises(RequestError, match=r"takes x\[1,3,9,7\]; .*; got 'x': \[5, 3, 9, 7\]"):
            parse(server, image(5, 3, 9, 7))
        return
    images = [image(n, 3, 9, 7) for n in (1, 2, 4, 5, 6)]
    for x, found in zip(images, answers(server, images), strict=True):
        y, mean = sized.reference(x)
        np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-4, atol=1e-4)


def test_other_names_are_refused_by_name(server):
    with pytest.raises(RequestError, match="the model has no input 'z', only x"):
        parse(server, image(1, 3, 9, 7), name="z")


@pytest.mark.parametrize("shape", [[1, 3, 9, 8], [3, 9, 7], [], "x", None, [1, 3, 9, 7.5]])
def test_other_shapes_are_refused_with_the_set(server, shape):
    takes = (
        r"the model takes x\[up to 6,.*7,9\]" if server.limits.batching else r"takes x\[1,.*7,9\]"
    )
    with pytest.raises(RequestError, match=takes):
        parse(server, image(1, 3, 9, 7), shape=shape)


def test_metadata_mark_extents_that_vary(server):
    found = server.models.metadata("sized", None)
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
    assert [one["shape"] for one in found["outputs"]] == [[-1, 5, -1, -1], [-1, 13, 1, 1]]


def test_a_benchmark_takes_answers_of_any_plan(sized):
    pytest.importorskip("fastapi")
    request = ServedRequest((4,), seconds=0.3, threads=1, max_batch=3)
    (report,) = measure_served([str(sized.path)], request)
    assert isinstance(report, ServedReport), report
    assert report.wrong == 0
