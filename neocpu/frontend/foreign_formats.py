"""Recognise a file that is not ONNX by its content, and say how to export it as ONNX."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOOKED_AT: Final = 1024
"""Bytes at a file's beginning that are searched for marks of XML and HTML."""

_UNPACK: Final = {
    b"\x1f\x8b": ("gzip", "gunzip -k"),
    b"BZh": ("bzip2", "bunzip2 -k"),
    b"\xfd7zXZ\0": ("xz", "unxz -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}
"""Compressed formats by their first bytes, and the commands that unpack them."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A file format: a test of its bytes, and from the path what the file is and what to do."""

    matches: Callable[[bytes], bool]
    advice: Callable[[Path], str]


def foreign_file(data: bytes, path: Path) -> str | None:
    """Return what a file of these bytes is and how to export it; None if that is not known."""
    if data.startswith(b"PK\x03\x04"):
        return _archive(data, path)
    for magic, (name, command) in _UNPACK.items():
        if data.startswith(magic):
            return f"compressed by {name}: unpack it first, {command} {_quoted(path)}"
    return next((each.advice(path) for each in _FORMATS if each.matches(data)), None)


def foreign_folder(path: Path) -> str | None:
    """Return what a folder is and how to export it; None if it is not a model known here."""
    if (path / "saved_model.pb").is_file():
        return f"a TensorFlow SavedModel: {_tf2onnx('--saved-model', path)}"
    if (path / "model.safetensors").is_file() and (path / "config.json").is_file():
        return (
            "a folder of Hugging Face: optimum-cli export onnx --model "
            f"{_quoted(path)} {_quoted(_onnx(path))}"
        )
    return None


def _archive(data: bytes, path: Path) -> str:
    """Return what a zip file is, by the names of its entries."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return "a damaged zip file"
    ends = {name.rpartition("/")[2] for name in names}
    if "model.json" in ends or "archive_format" in ends:
        return (
            f"a program of torch.export: torch.onnx.export(torch.export.load({_text(path)}), (), "
            f"{_text(_onnx(path))}, dynamo=True)"
        )
    if "constants.pkl" in ends or any("/code/" in name for name in names):
        return f"a TorchScript model: {_torch(f'torch.jit.load({_text(path)})', path)}"
    if "data.pkl" in ends:
        return _checkpoint(path)
    if "model.weights.h5" in ends:
        load = f"keras.saving.load_model({_text(path)})"
        return f"a Keras model: {load}.export({_text(_onnx(path))}, format='onnx')"
    models = [name for name in names if name.endswith(".onnx")]
    if models:
        return f"a zip file: unpack it first, unzip {_quoted(path)} {shlex.quote(models[0])}"
    return "a zip file without an .onnx file in it"


def _checkpoint(path: Path) -> str:
    return f"a PyTorch checkpoint: load it into its network, model, then {_torch('model', path)}"


def _torch(model: str, path: Path) -> str:
    return (
        f"torch.onnx.export({model}.eval(), (torch.zeros(1, 3, 224, 224),), "
        f"{_text(_onnx(path))}), with the shape of its own input"
    )


def _tf2onnx(option: str, path: Path) -> str:
    return f"python -m tf2onnx.convert {option} {_quoted(path)} --output {_quoted(_onnx(path))}"


def _is_tensorflow_graph(data: bytes) -> bool:
    return data[:1] == b"\n" and b"\x12\x0bPlaceholder" in data


def _is_safetensors(data: bytes) -> bool:
    length = int.from_bytes(data[:8], "little")
    return data[8:9] == b"{" and 2 <= length <= len(data) - 8


def _is_xml_of_openvino(data: bytes) -> bool:
    return b"<net " in data[:_LOOKED_AT] and data.lstrip().startswith((b"<?xml", b"<net "))


def _is_page(data: bytes) -> bool:
    return data[:_LOOKED_AT].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _text(path: Path) -> str:
    return repr(str(path))


def _onnx(path: Path) -> Path:
    return Path(f"{path.stem or 'model'}.onnx")


_FORMATS: Final = (
    _Format(
        # A pickle of protocol 2 to 5. Older checkpoints are several pickles.
        lambda data: data[:1] == b"\x80" and data[1:2] in b"\2\3\4\5" and data[-1:] == b".",
        _checkpoint,
    ),
    _Format(lambda data: data.startswith(b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."), _checkpoint),
    _Format(
        lambda data: data.startswith(b"\x89HDF\r\n\x1a\n"),
        lambda path: f"an HDF5 file, as of Keras: {_tf2onnx('--keras', path)}",
    ),
    _Format(
        lambda data: data[4:8] == b"TFL3",
        lambda path: f"a TensorFlow Lite model: {_tf2onnx('--tflite', path)}",
    ),
    _Format(
        _is_safetensors,
        lambda path: (
            f"a safetensors file, weights without a network: load them into it, then "
            f"{_torch('model', path)}"
        ),
    ),
    _Format(
        _is_xml_of_openvino,
        lambda path: "an OpenVINO model, made of another format: give that, as ONNX",
    ),
    _Format(
        lambda data: data.startswith(b"7767517\n"),
        lambda path: "an ncnn model, made of another format: give that, as ONNX",
    ),
    _Format(
        lambda data: data[4:8] == b"ORTM",
        lambda path: "a model in ONNX Runtime's own format, made of an .onnx file: give that",
    ),
    _Format(
        lambda data: data.startswith(b"\x7fELF"),
        lambda path: f"compiled already: neocpu run {_quoted(path)}",
    ),
    _Format(
        lambda data: data.startswith(b"version https://git-lfs"),
        lambda path: f"a pointer of Git LFS: git lfs pull --include {_quoted(path)}",
    ),
    _Format(
        _is_tensorflow_graph,
        lambda path: (
            f"a TensorFlow graph: {_tf2onnx('--graphdef', path)} --inputs INPUT:0 "
            "--outputs OUTPUT:0"
        ),
    ),
    _Format(_is_page, lambda path: "a web page: download the file itself, not the page about it"),
)
