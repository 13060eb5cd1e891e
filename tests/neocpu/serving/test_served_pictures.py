"""Pictures over HTTP: a server in a separate process, and artifacts of the command line."""

import asyncio
import base64
import io
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from picture_models import means_model
from raw_pictures import black_png
from server_process import ServerProcess
from v2_requests import Connection, body, head, tensor

import neocpu
from neocpu.cli.main import main
from neocpu.serving import server as server_module
from neocpu.serving.repository import ModelEntry
from neocpu.serving.server import InferCall, InferenceServer

Image = pytest.importorskip("PIL.Image")
triton = pytest.importorskip("tritonclient.http")
INFER = "/v2/models/{}/infer"
COLOUR = (200, 100, 50)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Artifacts for one picture, for two, and for any number up to four, in a folder."""
    folder = tmp_path_factory.mktemp("pictures")
    onnx.save(means_model(32, scale=255), folder / "means.onnx")
    onnx.save(means_model(32, "n", scale=255), folder / "any.onnx")
    asked = ["--input", "x=u8:nhwc:rgb:32x32"]
    for name, model, options in (
        ("means", "means", []),
        ("two", "any", ["--batch", "2"]),
        ("set", "any", ["--shape", "x:{1,4},3,32,32"]),
    ):
        target = folder / f"{name}.so"
        assert (
            main(["compile", str(folder / f"{model}.onnx"), *asked, *options, "-o", str(target)])
            == 0
        )
    return folder


@pytest.fixture(scope="module")
def server(artifacts, linear):
    paths = [artifacts / "means.so", artifacts / "two.so", artifacts / "set.so", linear.path]
    with ServerProcess(*paths) as running:
        yield running


def file(kind="PNG", size=(32, 32), mode="RGB", colour=COLOUR, **options):
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, kind, **options)
    return stream.getvalue()


def post(server, content, kind="image/png", model="means"):
    headers = {"Content-Length": len(content), "Content-Type": kind}
    with Connection(server.address) as connection:
        return connection.exchange(head(INFER.format(model), headers) + content)


def test_a_module_says_of_pictures_what_its_header_does(artifacts):
    """A tensor has the same description for every reader."""
    for name in ("means", "two", "set"):
        with neocpu.load(artifacts / f"{name}.so", 1) as module:
            for signature, header in zip(module.signatures, module.metadata.each, strict=True):
                assert signature.inputs == header.inputs
                assert signature.outputs == header.outputs
                assert signature.inputs[0].picture is not None


@pytest.mark.parametrize("model", ["means", "set"])
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp", "gif", "tiff"])
def test_bodies_that_are_pictures(server, model, kind):
    options = {"lossless": True} if kind == "webp" else {"quality": 95} if kind == "jpeg" else {}
    answer = post(server, file(kind.upper(), **options), f"image/{kind}", model)
    assert answer.status == 200, answer.content
    (output,) = answer.document["outputs"]
    np.testing.assert_allclose(output["data"], COLOUR, atol=1.1)


def test_pictures_of_another_size_and_depth(server):
    answer = post(server, file(size=(320, 200)))
    np.testing.assert_allclose(answer.document["outputs"][0]["data"], COLOUR, atol=0.1)
    deep = file(mode="I;16", colour=119 * 257)
    answer = post(server, deep)
    np.testing.assert_allclose(answer.document["outputs"][0]["data"], 119, atol=0.1)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("model", "count"), [("means", 1), ("two", 2), ("set", 4), ("set", 1)])
def test_pictures_as_tensors_of_any_bytes(server, model, count, binary):
    colours = [(10 * number, 0, 255) for number in range(count)]
    files = np.array([file(colour=colour) for colour in colours], object)
    with triton.InferenceServerClient(server.url) as client:
        given = triton.InferInput("x", [count], "BYTES")
        if binary:
            given.set_data_from_numpy(files, binary_data=True)
            found = client.infer(model, [given]).as_numpy("y")
        else:
            text = [base64.b64encode(each).decode() for each in files]
            entry = {"name": "x", "datatype": "BYTES", "shape": [count], "data": text}
            with Connection(server.address) as connection:
                answer = connection.post(INFER.format(model), body(entry))
            assert answer.status == 200, answer.content
            found = np.array(answer.document["outputs"][0]["data"]).reshape(count, 3)
    np.testing.assert_allclose(found, colours, atol=0.1)


def test_pixels_are_taken_too(server, artifacts):
    pixels = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    with Connection(server.address) as connection:
        answer = connection.post(INFER.format("means"), body(tensor("x", pixels)))
    with neocpu.load(artifacts / "means.so", 1) as module:
        np.testing.assert_array_equal(
            np.float32(answer.document["outputs"][0]["data"]), module(pixels).ravel()
        )


def test_what_is_refused(server):
    for content, model, status, says in (
        (b"no picture", "means", 400, "cannot identify"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "means", 400, "cannot identify"),
        (black_png(1, 1 << 24), "means", 400, "of memory, more than 536.9 MB"),
        (black_png(11000, 10000, 1, 0), "means", 400, "of memory, more than 536.9 MB"),
        (file(), "linear", 415, "compiled for pictures"),
        (file(), "two", 400, "compiled for 2 pictures, got 1"),
    ):
        answer = post(server, content, model=model)
        assert (answer.status, says in answer.document["error"]) == (status, True), answer.content
    assert server.log() == ""  # and Pillow says nothing


def test_pictures_that_are_computed_jointly(artifacts):
    with ServerProcess(artifacts / "set.so", "--max-batch", "4") as server:
        assert post(server, file(), model="set").status == 200
        files = np.array([file(colour=(n, 0, 0)) for n in range(3)], object)
        with triton.InferenceServerClient(server.url) as client:
            given = triton.InferInput("x", [3], "BYTES")
            given.set_data_from_numpy(files)
            found = client.infer("set", [given]).as_numpy("y")
        np.testing.assert_allclose(found[:, 0], range(3), atol=0.1)


async def test_pictures_are_decoded_one_at_a_time_whoever_goes_away(monkeypatch):
    """One thread decodes: the C library keeps the freed memory of each, hundreds of megabytes."""
    running, most, threads = 0, 0, set()

    def decode(*_):
        nonlocal running, most
        threads.add(threading.get_ident())
        running += 1
        most = max(most, running)
        time.sleep(0.05)
        running -= 1

    monkeypatch.setattr(server_module, "parse_picture", decode)
    server = InferenceServer([ModelEntry("net", Path("net.so"))])
    spec = SimpleNamespace(picture=True)
    signature = SimpleNamespace(inputs=[spec])
    model = SimpleNamespace(signatures=[signature], request_values=1, sized=None)
    call = InferCall(model="net", version=None, length=None, json_bytes=None, is_picture=True)
    tasks = [asyncio.create_task(server._parse(memoryview(b""), call, model)) for _ in range(5)]
    await asyncio.sleep(0.02)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 1
    assert len(threads) == 1
