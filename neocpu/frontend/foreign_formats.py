"""Recognise a file that is not ONNX by its content, and say how to export it as ONNX."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOOKED_AT: Final = 1024  # bytes at a file's beginning that are searched for marks of XML and HTML

_TF2ONNX: Final = "python -m tf2onnx.convert {option} {path} --output {onnx}"
_TORCH: Final = (
    "torch.onnx.export({model}.eval(), (torch.zeros(1, 3, 224, 224),), {onnx_text}), with the "
    "shape of its own input"
)
_CHECKPOINT: Final = f"a PyTorch checkpoint: load it into its network, model, then {_TORCH}"

_MAGIC: Final = (
    (0, b"\x1f\x8b", "compressed by gzip: unpack it first, gunzip -k {path}", ""),
    (0, b"BZh", "compressed by bzip2: unpack it first, bunzip2 -k {path}", ""),
    (0, b"\xfd7zXZ\0", "compressed by xz: unpack it first, unxz -k {path}", ""),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first, unzstd {path}", ""),
    # Older checkpoints are several pickles.
    (0, b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", _CHECKPOINT, "model"),
    (0, b"\x89HDF\r\n\x1a\n", f"an HDF5 file, as of Keras: {_TF2ONNX}", "--keras"),
    (4, b"TFL3", f"a TensorFlow Lite model: {_TF2ONNX}", "--tflite"),
    (0, b"7767517\n", "an ncnn model, made of another format: give that, as ONNX", ""),
    (4, b"ORTM", "a model in ONNX Runtime's own format, made of an .onnx file: give that", ""),
    (0, b"\x7fELF", "compiled already: neocpu run {path}", ""),
    (0, b"version https://git-lfs", "a pointer of Git LFS: git lfs pull --include {path}", ""),
)
"""Formats by bytes at an offset, with advice, and the model or the option in it."""


def foreign_file(data: bytes, path: Path) -> str | None:
    """Return what a file of these bytes is and how to export it; None if that is not known."""
    if data.startswith(b"PK\x03\x04"):
        return _archive(data, path)
    for offset, magic, advice, model in _MAGIC:
        if data.startswith(magic, offset):
            return _filled(advice, path, model)
    return next((_filled(advice, path, m) for is_it, advice, m in _FORMATS if is_it(data)), None)


def foreign_folder(path: Path) -> str | None:
    """Return what a folder is and how to export it; None if it is not a model known here."""
    if (path / "saved_model.pb").is_file():
        return _filled(f"a TensorFlow SavedModel: {_TF2ONNX}", path, "--saved-model")
    if (path / "model.safetensors").is_file() and (path / "config.json").is_file():
        hub = "a folder of Hugging Face: optimum-cli export onnx --model {path} {onnx}"
        return _filled(hub, path)
    return None


def _filled(advice: str, path: Path, model: str = "") -> str:
    """Return advice with the names of the file and of the export, in a shell and in Python."""
    onnx = f"{path.stem or 'model'}.onnx"
    names = {"path": shlex.quote(str(path)), "onnx": shlex.quote(onnx)}
    texts = {"text": repr(str(path)), "onnx_text": repr(onnx)}
    return advice.format(**names, **texts, model=model, option=model)


def _archive(data: bytes, path: Path) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return "a damaged zip file"
    ends = {name.rpartition("/")[2] for name in names}
    if "model.json" in ends or "archive_format" in ends:
        program = (
            "a program of torch.export: torch.onnx.export(torch.export.load({text}), (), "
            "{onnx_text}, dynamo=True)"
        )
        return _filled(program, path)
    if "constants.pkl" in ends or any("/code/" in name for name in names):
        return _filled(f"a TorchScript model: {_TORCH}", path, f"torch.jit.load({str(path)!r})")
    if "data.pkl" in ends:
        return _filled(_CHECKPOINT, path, "model")
    if "model.weights.h5" in ends:
        load = "keras.saving.load_model({text}).export({onnx_text}, format='onnx')"
        return _filled(f"a Keras model: {load}", path)
    if models := [name for name in names if name.endswith(".onnx")]:
        inside = shlex.quote(models[0])
        return f"a zip file: unpack it first, unzip {shlex.quote(str(path))} {inside}"
    return "a zip file without an .onnx file in it"


def _is_pickle(data: bytes) -> bool:
    """Return whether data are one pickle of protocol 2 to 5."""
    return data[:1] == b"\x80" and data[1:2] in b"\2\3\4\5" and data[-1:] == b"."


def _is_tensorflow_graph(data: bytes) -> bool:
    return data[:1] == b"\n" and b"\x12\x0bPlaceholder" in data


def _is_safetensors(data: bytes) -> bool:
    length = int.from_bytes(data[:8], "little")
    return data[8:9] == b"{" and 2 <= length <= len(data) - 8


def _is_xml_of_openvino(data: bytes) -> bool:
    return b"<net " in data[:_LOOKED_AT] and data.lstrip().startswith((b"<?xml", b"<net "))


def _is_page(data: bytes) -> bool:
    return data[:_LOOKED_AT].lstrip().lower().startswith((b"<!doctype html", b"<html"))


_WEIGHTS: Final = "a safetensors file, weights without a network: load them into it, then "
_FORMATS: Final[tuple[tuple[Callable[[bytes], bool], str, str], ...]] = (
    (_is_pickle, _CHECKPOINT, "model"),
    (_is_safetensors, _WEIGHTS + _TORCH, "model"),
    (_is_xml_of_openvino, "an OpenVINO model, made of another format: give that, as ONNX", ""),
    (
        _is_tensorflow_graph,
        f"a TensorFlow graph: {_TF2ONNX} --inputs INPUT:0 --outputs OUTPUT:0",
        "--graphdef",
    ),
    (_is_page, "a web page: download the file itself, not the page about it", ""),
)
