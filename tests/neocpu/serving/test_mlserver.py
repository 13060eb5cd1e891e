"""The runtime in MLServer itself, with an independent client."""

import asyncio
import base64
import io
import json
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from picture_models import means_model
from server_process import free_ports
from waiting import wait_until

import neocpu

pytest.importorskip("mlserver")
from mlserver import ModelSettings
from mlserver.batching import load_batching
from mlserver.errors import MLServerError
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, RequestInput

from neocpu.serving.mlserver import NeoCPURuntime

triton = pytest.importorskip("tritonclient.http")
EXAMPLE = Path(__file__).parents[3] / "examples" / "serve_mlserver"


@pytest.fixture(scope="module")
def server(linear, tmp_path_factory):
    """The example, with a toy model and free ports: its address and that of its metrics."""
    folder = tmp_path_factory.mktemp("mlserver")
    ports = free_ports(3)
    for name, changes in {
        "settings.json": dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True)),
        "model-settings.json": {
            "name": "linear",
            "parameters": {"uri": str(linear.path), "version": "3", "extra": {"queue": 64}},
        },
    }.items():
        settings = json.loads((EXAMPLE / name).read_text())
        (folder / name).write_text(json.dumps({**settings, **changes}))
    with tempfile.TemporaryFile("w+") as log:
        program = "from mlserver.cli.main import main; main()"
        command = [sys.executable, "-c", program, "start", str(folder)]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                _wait(f"http://127.0.0.1:{ports[0]}/v2/health/ready", process, log)
                yield f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[2]}/metrics"
            finally:
                process.terminate()
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()


def _wait(url, process, log):
    def answers():
        if process.poll() is not None:
            log.seek(0)
            raise AssertionError(log.read())
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        return False

    wait_until(answers, 120)


def ask(client, x, name="x", binary=False):
    tensor = triton.InferInput(name, x.shape, "FP32" if x.dtype == "float32" else "FP64")
    tensor.set_data_from_numpy(x, binary_data=binary)
    wanted = [triton.InferRequestedOutput("y", binary_data=False)]
    return client.infer("linear", [tensor], outputs=wanted, request_id="7")


def test_metadata(server):
    with triton.InferenceServerClient(server[0]) as client:
        assert client.is_model_ready("linear")
        found = client.get_model_metadata("linear")
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [4, 64]}]
    assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [4, 33]}]


@pytest.mark.parametrize("clients", [1, 8])
def test_outputs_are_those_of_direct_calls(server, linear, clients):
    def work(seed):
        (x,) = linear.inputs(seed)
        with triton.InferenceServerClient(server[0]) as client:
            return x, ask(client, x)

    with neocpu.load(linear.path, 1) as module, ThreadPoolExecutor(clients) as pool:
        for x, answer in pool.map(work, range(2 * clients)):
            assert answer.as_numpy("y").tobytes() == module(x).tobytes()
            assert answer.get_response()["id"] == "7"
            assert answer.get_response()["model_version"] == "3"


def test_mistakes_are_the_clients(server, linear):
    (x,) = linear.inputs(0)
    with triton.InferenceServerClient(server[0]) as client:
        for array, name, words in [
            (x, "z", "no input 'z'"),
            (x[:1], "x", "compiled for batches of 4"),
            (x.astype("float64"), "x", "takes FP32, got FP64"),
            (np.full_like(x, np.nan), "x", "json_invalid"),
        ]:
            with pytest.raises(triton.InferenceServerException, match=words) as caught:
                ask(client, array, name)
            assert caught.value.status() in ("400", "422")


def runtime_of(path, **settings):
    parameters = ModelParameters(uri=str(path), extra={"threads": 1})
    own = {"implementation": NeoCPURuntime, "parameters": parameters, **settings}
    return NeoCPURuntime(ModelSettings(name="net", **own))


def request_of(data, shape, name="x", datatype="FP32"):
    tensor = {"name": name, "datatype": datatype, "shape": list(shape), "data": data}
    return InferenceRequest(inputs=[RequestInput(**tensor)])


def array_of(answer):
    return np.array(answer.outputs[0].data.root, "float32")


async def test_unloading_answers_what_was_accepted(linear):
    (x,) = linear.inputs(0)
    request = request_of(x.ravel().tolist(), x.shape)
    runtime = runtime_of(linear.path)
    await runtime.load()
    accepted = [asyncio.ensure_future(runtime.predict(request)) for _ in range(40)]
    await asyncio.sleep(0)
    await runtime.unload()
    with pytest.raises(MLServerError, match="not ready"):
        await runtime.predict(request)
    answers = await asyncio.gather(*accepted)
    with neocpu.load(linear.path, 1) as module:
        expected = module(x).tobytes()
    for answer in answers:
        assert array_of(answer).tobytes() == expected


async def test_its_adaptive_batching_is_ours(linear):
    """Requests of one row use a model of four rows; a wrong request fails alone."""
    (x,) = linear.inputs(0)

    def request(row, name="x"):
        return request_of(row.ravel().tolist(), row.shape, name)

    plain = runtime_of(linear.path, max_batch_size=4, max_batch_time=0.01)
    runtime = await load_batching(plain)
    await runtime.load()
    assert [tensor.shape for tensor in runtime.inputs] == [[-1, 64]]
    asked = [request(x[row : row + 1]) for row in range(4)] + [request(x[:1], "z"), request(x)]
    found = await asyncio.gather(*map(runtime.predict, asked), return_exceptions=True)
    await runtime.unload()
    *rows, wrong, whole = found
    with neocpu.load(linear.path, 1) as module:
        expected = module(x)
    assert isinstance(wrong, MLServerError)
    for row, answer in enumerate(rows):
        assert answer.outputs[0].shape == [1, 33]
        assert array_of(answer).tobytes() == expected[row].tobytes()
    assert array_of(whole).tobytes() == expected.tobytes()


async def test_pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "means.so"
    asked = neocpu.Processing.parse(input="x=u8:16x16")
    neocpu.compile(means_model(scale=255), processing=asked).export(path)
    stream = io.BytesIO()
    image.new("RGB", (16, 16), (200, 100, 50)).save(stream, "PNG")
    in_json = base64.b64encode(stream.getvalue()).decode()

    def request(*files):
        return request_of(list(files), [len(files)], datatype="BYTES")

    runtime = runtime_of(path)
    await runtime.load()
    for file in (in_json, stream.getvalue()):  # over HTTP, and gRPC
        (output,) = (await runtime.predict(request(file))).outputs
        np.testing.assert_allclose(output.data.root, (200, 100, 50), atol=0.1)
    with pytest.raises(MLServerError, match=r"encoded pictures have the shape \[1\]"):
        await runtime.predict(request(in_json, in_json))
    await runtime.unload()


def test_metrics(server, linear):
    (x,) = linear.inputs(0)
    with triton.InferenceServerClient(server[0]) as client:
        ask(client, x)
    with urllib.request.urlopen(server[1], timeout=5) as stream:
        text = stream.read().decode()
    assert 'neocpu_requests_total{code="200",model="linear",version="3"}' in text
    assert 'neocpu_model_ready{model="linear",version="3"} 1.0' in text
