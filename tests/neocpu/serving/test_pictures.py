"""Encoded pictures in requests."""

import asyncio
import base64
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_modules import OUTPUT, FakeModule
from v2_requests import body

from neocpu.foundation.tensor_spec import Picture, TensorSpec
from neocpu.runtime.pictures import picture_files
from neocpu.runtime.signatures import Signature
from neocpu.serving import model as served
from neocpu.serving import pictures, workers
from neocpu.serving.refusals import EncodingError, RequestError
from neocpu.serving.repository import ModelEntry
from neocpu.serving.request import parse_picture, parse_request, values_at_most
from neocpu.serving.server import InferCall, InferenceServer, Limits
from neocpu.serving.tensors import json_bytes_at_most

Image = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def parse(content, one, json_bytes=None):
    signatures = [Signature((one,), ())]
    return parse_request(memoryview(content), json_bytes, signatures, values_at_most(signatures))


def spec(layout="nhwc", colours="rgb", fit="stretch", batch=1, size=(6, 8)):
    channels = 1 if colours == "gray" else 3
    shape = (channels, *size) if layout == "nchw" else (*size, channels)
    return TensorSpec("x", "uint8", (batch, *shape), picture=Picture(layout, colours, fit))


def encoded(pixels=PIXELS, kind="PNG"):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def request(one, *files):
    """Return the input that a request with files in base 64 makes."""
    data = [base64.b64encode(file).decode() for file in files]
    entry = {"name": "x", "datatype": "BYTES", "shape": [len(files)], "data": data}
    return parse(body(entry), one).inputs["x"]


def binary(one, data):
    """Return the input that a request with binary data makes."""
    entry = {"name": "x", "datatype": "BYTES", "shape": [one.shape[0]]}
    head = body({**entry, "parameters": {"binary_data_size": len(data)}})
    return parse(head + data, one, len(head)).inputs["x"]


def element(file):
    return len(file).to_bytes(4, "little") + file


def test_pixels_arrive_as_the_input_has_them():
    np.testing.assert_array_equal(request(spec(), encoded()), PIXELS[None])
    blue_first = request(spec("nchw", "bgr"), encoded())
    np.testing.assert_array_equal(blue_first[0], PIXELS[:, :, ::-1].transpose(2, 0, 1))
    assert blue_first.flags.c_contiguous
    grey = np.asarray(Image.fromarray(PIXELS).convert("L"))
    np.testing.assert_array_equal(request(spec(colours="gray"), encoded())[0, :, :, 0], grey)


def test_however_they_are_sent():
    file = encoded(kind="BMP")
    (made,) = parse_picture(memoryview(file), [Signature((spec(),), ())]).inputs.values()
    np.testing.assert_array_equal(made[0], PIXELS)
    two = binary(spec(batch=2), element(file) + element(encoded(PIXELS[::-1])))
    np.testing.assert_array_equal(two, [PIXELS, PIXELS[::-1]])


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
def test_a_picture_of_another_size_is_made_to_fit(fit):
    wide = np.repeat(np.repeat(PIXELS, 8, axis=0), 16, axis=1)  # 48 x 128
    image, bilinear = Image.fromarray(wide), Image.Resampling.BILINEAR
    if fit == "stretch":
        wanted = np.asarray(image.resize((8, 6), bilinear))
    elif fit == "crop":
        wanted = np.asarray(image.resize((8, 6), bilinear, box=(32, 0, 96, 48)))
    else:
        wanted = np.full((6, 8, 3), 114, np.uint8)
        wanted[1:4] = np.asarray(image.resize((8, 3), bilinear))
        wanted[2:5], wanted[1:2] = wanted[1:4].copy(), 114
    made = request(spec(fit=fit), encoded(wide))[0]
    np.testing.assert_array_equal(made, wanted)


def test_pixels_are_still_taken():
    entry = {
        "name": "x",
        "datatype": "UINT8",
        "shape": [1, 6, 8, 3],
        "data": PIXELS.ravel().tolist(),
    }
    made = parse(body(entry), spec()).inputs["x"]
    np.testing.assert_array_equal(made[0], PIXELS)


def test_a_picture_that_is_sent_as_json_gets_a_hint():
    with pytest.raises(RequestError, match="send a picture with its own Content-Type"):
        parse(encoded(), spec())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (element(b"no picture"), "no picture that can be decoded"),
        (element(encoded()[:60]), "no picture that can be decoded"),
        (b"", "compiled for 1 pictures, got 0"),
        (element(encoded()) * 2, "for each of 1 pictures"),
        (element(encoded())[:-1], "a length in four bytes"),
        (b"\xff\xff\xff\xff", "a length in four bytes"),
        (b"\0", "a length in four bytes"),
    ],
)
def test_what_is_no_picture(data, message):
    with pytest.raises(RequestError, match=message):
        binary(spec(), data)


@pytest.mark.parametrize("shape", [[2], [1, 1], [], 1, None])
def test_another_number_of_pictures(shape):
    entry = {"name": "x", "datatype": "BYTES", "shape": shape, "data": []}
    with pytest.raises(RequestError, match=r"encoded pictures have the shape \[1\]"):
        parse(body(entry), spec())


def test_data_that_are_no_strings_in_base_64():
    for data in ("AAAA", [1], ["?"], None):
        entry = {"name": "x", "datatype": "BYTES", "shape": [1], "data": data}
        with pytest.raises(RequestError, match="base 64"):
            parse(body(entry), spec())


def test_a_small_file_of_too_many_pixels(monkeypatch):
    monkeypatch.setattr(picture_files, "MAX_BYTES", 47)
    with pytest.raises(RequestError, match=r"its 8x6 pixels would take .* more than 47 B"):
        request(spec(), encoded())


def test_inputs_that_take_no_pictures():
    plain = TensorSpec("x", "uint8", (1, 6, 8, 3))
    with pytest.raises(RequestError, match="the model takes UINT8"):
        request(plain, encoded())
    for inputs in ([plain], [spec(), plain]):
        with pytest.raises(EncodingError, match="models with one input, compiled for pictures"):
            parse_picture(memoryview(encoded()), [Signature(inputs, ())])


def test_as_many_pictures_as_a_request_has():
    one = replace(spec(batch=4), bounded=True)
    assert request(one, encoded(), encoded()).shape == (2, 6, 8, 3)
    alone = parse_picture(memoryview(encoded()), [Signature((one,), ())])
    assert alone.inputs["x"].shape == (1, 6, 8, 3)
    with pytest.raises(RequestError, match="from 1 to 4 rows of each input, got 5"):
        request(one, *[encoded()] * 5)


async def test_a_server_takes_bodies_that_are_pictures(monkeypatch):
    """Larger than the input's numbers in JSON: the input is tiny, the file is not."""
    monkeypatch.setattr(workers, "ThreadPool", lambda _: SimpleNamespace(close=lambda: None))
    module = FakeModule(log=[])
    module.signatures = (Signature((spec(size=(1, 1)),), (OUTPUT,)),)
    monkeypatch.setattr(served, "load", lambda *_, **__: module)
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    file = encoded(noise)
    assert len(file) > json_bytes_at_most(module.signatures[0].inputs)

    async def chunks():
        yield file

    async def gone():
        await asyncio.Event().wait()

    server = InferenceServer([ModelEntry("net", "net.so")], Limits(instances=1))
    server.start()
    call = InferCall(model="net", version=None, length=len(file), json_bytes=None, is_picture=True)
    answer = asyncio.ensure_future(server.infer(call, chunks(), gone))
    while not module.calls:
        await asyncio.sleep(0.001)
    ((_, inputs),) = module.calls
    module.finish()
    answered, share = await answer
    share.close()
    server.close()
    assert inputs["x"].shape == (1, 1, 1, 3)
    assert json.loads(answered.body)["model_name"] == "net"


def test_a_server_without_pillow(monkeypatch):
    def missing(*_, **__):
        raise ModuleNotFoundError("No module named 'PIL'", name="PIL")

    monkeypatch.setattr(pictures, "decode_picture", missing)
    with pytest.raises(EncodingError, match="pip install 'neocpu\\[images\\]'"):
        request(spec(), encoded())
