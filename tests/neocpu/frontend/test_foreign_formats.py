"""Files of other formats: recognised by their content, with the line that exports ONNX."""

import gzip
import io
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from neocpu.foundation.errors import ModelError
from neocpu.frontend.load import load_model


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return buffer.getvalue()


def old_checkpoint() -> bytes:
    """Return a file in torch.save's format before archives: several pickles, then weights."""
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"weight": [1.0]})
    return b"".join(pickle.dumps(part, 2) for part in parts) + bytes(64)


SAFETENSORS = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

FILES = {
    "net.pt": (
        archive("net/data.pkl", "net/constants.pkl", "net/code/__torch__.py"),
        "torch.onnx.export(torch.jit.load('net.pt').eval(), (torch.zeros(1, 3, 224, 224),), "
        "'net.onnx')",
    ),
    "weights.pth": (
        archive("weights/data.pkl", "weights/data/0", "weights/version"),
        "a PyTorch checkpoint: load it into its network, model, then torch.onnx.export(model",
    ),
    "old.pth": (old_checkpoint(), "a PyTorch checkpoint"),
    "net.pkl": (pickle.dumps({"weight": [1.0]}, 4), "a PyTorch checkpoint"),
    "net.pt2": (
        archive("net/archive_format", "net/models/model.json"),
        "torch.onnx.export(torch.export.load('net.pt2'), (), 'net.onnx', dynamo=True)",
    ),
    "net.keras": (
        archive("metadata.json", "config.json", "model.weights.h5"),
        "keras.saving.load_model('net.keras').export('net.onnx', format='onnx')",
    ),
    "net.h5": (
        b"\x89HDF\r\n\x1a\n" + bytes(100),
        "python -m tf2onnx.convert --keras net.h5 --output net.onnx",
    ),
    "my net.tflite": (
        b"\x1c\0\0\0TFL3" + bytes(100),
        "python -m tf2onnx.convert --tflite 'my net.tflite' --output 'my net.onnx'",
    ),
    "frozen.pb": (
        b"\n\x1f\n\x05input\x12\x0bPlaceholder*\x09\n\x05dtype\x12\0",
        "python -m tf2onnx.convert --graphdef frozen.pb --output frozen.onnx --inputs INPUT:0",
    ),
    "model.safetensors": (
        struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + bytes(4),
        "weights without a network",
    ),
    "net.xml": (b'<?xml version="1.0"?>\n<net name="n" version="11">', "an OpenVINO model"),
    "net.param": (b"7767517\n2 1\nInput x 0 1 x\n", "an ncnn model"),
    "net.ort": (b"\x1c\0\0\0ORTM" + bytes(100), "ONNX Runtime's own format"),
    "net.onnx.gz": (gzip.compress(b"model"), "compressed by gzip: unpack it first, gunzip -k"),
    "net.zip": (archive("a/net.onnx"), "unpack it first, unzip net.zip a/net.onnx"),
    "other.zip": (archive("a.txt"), "a zip file without an .onnx file in it"),
    "cut.zip": (archive("a.txt")[:20], "a damaged zip file"),
    "net.so": (b"\x7fELF" + bytes(100), "compiled already: neocpu run net.so"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
    "page.onnx": (b"\n<!DOCTYPE html><html>", "a web page"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", [True, False])
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, suffix: bool) -> None:
    monkeypatch.chdir(tmp_path)
    data, advice = FILES[name]
    path = Path(name)
    path.write_bytes(data)
    if not suffix:  # the name says nothing
        path = path.rename("model.bin")
    with pytest.raises(ModelError) as caught:
        load_model(path)
    message = str(caught.value)
    assert message.startswith(f"'{path}' is not an ONNX model but ")
    assert "\n" not in message
    if suffix:
        assert advice in message


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelError, match=r"a TensorFlow SavedModel: python -m tf2onnx\.convert"):
        load_model(tmp_path)
    (tmp_path / "saved_model.pb").rename(tmp_path / "model.safetensors")
    (tmp_path / "config.json").touch()
    with pytest.raises(ModelError, match="optimum-cli export onnx --model"):
        load_model(tmp_path)


def test_another_damaged_file_is_only_not_onnx(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"nothing known")
    with pytest.raises(ModelError, match="is not an ONNX model, or is truncated"):
        load_model(path)
