"""Read an ONNX model from a path, bytes or a ModelProto, with every way that can fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from neocpu.foundation.errors import MissingModelError, ModelError
from neocpu.foundation.files import read_file
from neocpu.foundation.host import usable_memory
from neocpu.foundation.plain_text import plain
from neocpu.frontend.checks.tensor_check import all_tensors
from neocpu.frontend.foreign_formats import foreign_file, foreign_folder

MAX_BYTES: Final = 2 << 30
"""Of a model's file: protobuf reads no longer messages. Weights may lie in other files."""

_BY_PATH: Final = "give the path of the .onnx file instead"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an exception's message, or its type's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def read_model(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """Return a ModelProto of the caller's model that may be changed freely.

    External tensor data is read from the model file's own folder only: onnx refuses absolute
    paths, ``..`` and symbolic links that leave it.

    Raises
    ------
    ModelError
        If the file cannot be read, is not an ONNX model, or its external data is missing,
        truncated or outside the folder.
    """
    if isinstance(model, onnx.ModelProto):
        own = onnx.ModelProto()
        own.CopyFrom(model)
        return _without_external_data(own, "the given ModelProto", _BY_PATH)
    if isinstance(model, bytes):
        where = "the given bytes"
        return _without_external_data(_parse(model, where), where, _BY_PATH)
    path = Path(model)
    data = _read_bytes(path)
    try:
        proto = _parse(data, f"'{path}'")
    except ModelError:
        if (kind := foreign_file(data, path)) is not None:
            raise ModelError(f"'{path}' is not an ONNX model but {kind}") from None
        raise
    _refuse_odd_places(proto, path)
    _refuse_too_large(proto, path)
    try:
        load_external_data_for_model(proto, str(path.parent))
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ModelError(
            f"cannot read the external data of '{path}': {first_line(error)}"
        ) from error
    return _without_external_data(proto, f"'{path}'", "save it with its weights inside")


def _refuse_odd_places(proto: onnx.ModelProto, path: Path) -> None:
    """Raise for external data whose place is not what it seems: C would cut a name at a zero."""
    for tensor in filter(uses_external_data, all_tensors(proto)):
        for entry in tensor.external_data:
            number = entry.key in ("offset", "length")
            if (number and not entry.value.isdecimal()) or not entry.value.isprintable():
                raise ModelError(
                    f"'{path}' keeps tensor '{plain(tensor.name)}' at the {plain(entry.key)} "
                    f"'{plain(entry.value)}', which is no {'place in a file' if number else 'name'}"
                )


def _refuse_too_large(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse weights in other files that would not fit the memory: a hundred bytes may name any.

    Several tensors may name the same bytes, and a file may have holes that take no disk.
    """
    needed = sum(_external_bytes(tensor, path.parent) for tensor in all_tensors(proto))
    if needed > (most := usable_memory()):
        raise ModelError(
            f"cannot read the external data of '{path}': its tensors take {needed / 1e9:.1f} GB "
            f"of memory, of which this process may use {most / 1e9:.1f} GB"
        )


def _external_bytes(tensor: onnx.TensorProto, folder: Path) -> int:
    """Return what will be read of another file; 0 where onnx will say what is wrong with it."""
    if not uses_external_data(tensor):
        return 0
    told = {entry.key: entry.value for entry in tensor.external_data}
    try:
        whole = os.stat(folder / told.get("location", "")).st_size
        rest = max(0, whole - int(told.get("offset", 0)))
        return min(rest, int(told.get("length", rest)))
    except (OSError, ValueError):
        return 0


def _read_bytes(path: Path) -> bytes:
    try:
        return read_file(path, MAX_BYTES, pipes=True)
    except FileNotFoundError as error:
        raise MissingModelError(f"no such model file: '{path}'") from error
    except IsADirectoryError as error:
        if (kind := foreign_folder(path)) is not None:
            raise ModelError(f"'{path}' is not an ONNX model but {kind}") from None
        raise ModelError(f"'{path}' is a folder; give the .onnx file inside it") from error
    except OSError as error:
        raise ModelError(f"cannot read the model '{path}': {error.strerror or error}") from error


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{where} is empty, not an ONNX model")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{where} is not an ONNX model, or is truncated") from error
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError(f"{where} is not an ONNX model: it holds no graph")
    return proto


def _without_external_data(proto: onnx.ModelProto, where: str, mend: str) -> onnx.ModelProto:
    """Refuse what others would look for in the working directory."""
    outside = [tensor.name for tensor in all_tensors(proto) if uses_external_data(tensor)]
    if outside:
        raise ModelError(
            f"{where} keeps {len(outside)} tensors (first '{outside[0]}') in external files; {mend}"
        )
    return proto
