"""Read an ONNX model from a path, bytes or a ModelProto, and report what is wrong with it.

Weights in other files are read after checking their places. onnx makes sure that no symbolic link
leads out of the folder, but its errors are in the words of C++, and it cuts names at a zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from neocpu.foundation.errors import ArgumentTypeError, MissingModelError, ModelError
from neocpu.foundation.files import read_file, regular_status
from neocpu.foundation.host import usable_memory
from neocpu.foundation.plain_text import plain, shortened
from neocpu.foundation.units import plural
from neocpu.frontend.checks.tensor_check import all_tensors, declared_problem, refuse_broken_texts
from neocpu.frontend.foreign_formats import foreign_file, foreign_folder
from neocpu.frontend.onnx_graph.weight_store import WeightStore, is_stored
from neocpu.frontend.onnx_graph.weightless_model import tensor_bytes
from neocpu.frontend.sparse_weights import make_dense

MAX_BYTES: Final = 2 << 30
"""Bytes of the largest model file: protobuf reads no longer messages. Weights may be elsewhere."""

_BY_PATH: Final = "give the path of the .onnx file instead"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an exception's message, or its type's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def read_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, weights: WeightStore | None = None
) -> onnx.ModelProto:
    """Return a copy of the caller's model as a ModelProto, or raise a `ModelError`.

    External tensor data is read from the model file's own folder only; sparse tensors become dense.
    A store takes large weights, which the result lacks; the owner of the model must keep the store.
    """
    if isinstance(model, onnx.ModelProto):
        found, where = model, "the given ModelProto"
        refuse_broken_texts(model, where)
        _refuse_external_data(model, where, _BY_PATH)
    elif isinstance(model, bytes):
        where = "the given bytes object"
        found = _parse(model, where)
        _refuse_external_data(found, where, _BY_PATH)
    elif isinstance(model, str | os.PathLike):
        found = _read_path(Path(model))
    else:
        raise _no_model(model)
    if weights is not None:
        found = weights.take(found)
    elif found is model:
        found = onnx.ModelProto()
        found.CopyFrom(model)
    make_dense(found, name_of(model))
    return found


def name_of(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> str:
    """Return the name of a model for messages: its path, if it has one."""
    return "the model" if isinstance(model, bytes | onnx.ModelProto) else f"'{Path(model)}'"


def _read_path(path: Path) -> onnx.ModelProto:
    data = _read_bytes(path)
    try:
        proto = _parse(data, f"'{path}'")
    except ModelError:
        if (kind := foreign_file(data, path)) is not None:
            raise ModelError(f"'{path}' is not an ONNX model but {kind}") from None
        raise
    read_external_data(proto, path)
    _refuse_external_data(proto, f"'{path}'", "save it with its weights inside")
    return proto


def _no_model(given: object) -> ArgumentTypeError:
    """Return an error with a hint; PyTorch's own models are recognised by their methods."""
    if hasattr(given, "model_proto"):  # the result of torch.onnx.export
        hint = ": pass its model_proto"
    elif hasattr(given, "state_dict"):
        hint = ": export it with torch.onnx.export(model.eval(), (example,), 'net.onnx')"
    else:
        hint = ""
    return ArgumentTypeError(
        "a model is the path of an .onnx file, its bytes, an onnx.ModelProto or the name of a "
        f"built-in network, got {type(given).__name__}{hint}"
    )


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
    refuse_broken_texts(proto, where)
    return proto


def _refuse_external_data(proto: onnx.ModelProto, where: str, mend: str) -> None:
    """Refuse external tensors, whose files other programs would look for in the working folder."""
    outside = [
        tensor.name
        for tensor in all_tensors(proto)
        if uses_external_data(tensor) and not is_stored(tensor)
    ]
    if outside:
        raise ModelError(
            f"{where} keeps {plural(len(outside), 'tensor')} (first '{outside[0]}') in external "
            f"files; {mend}"
        )


_T = TypeVar("_T")
_SHOWN = 100  # characters of a file's name that a message quotes


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor's bytes: a file's name, and a part of it, by default all."""

    location: str
    offset: int = 0
    length: int | None = None


def read_external_data(model: onnx.ModelProto, path: Path) -> None:
    """Copy the data of all tensors that lie in other files into the model, in place.

    A `ModelError` names the first tensor whose file is outside the model's folder, missing or too
    short, or says that all take more memory than there is.
    """
    found = [tensor for tensor in all_tensors(model) if uses_external_data(tensor)]
    total = sum(_each(_checked_bytes, tensor, path) for tensor in found)
    # Several tensors may name the same bytes, and a sparse file may be larger than the disk.
    if total > (most := usable_memory()):
        raise ModelError(
            f"cannot read the external data of '{path}': its tensors take {total / 1e9:.1f} GB "
            f"of memory, of which this process may use {most / 1e9:.1f} GB"
        )
    for tensor in found:
        _each(_read_tensor, tensor, path)


def _each(step: Callable[[onnx.TensorProto, Path], _T], tensor: onnx.TensorProto, path: Path) -> _T:
    """Apply a function to a tensor and the model's folder; an error names the tensor and file."""
    try:
        return step(tensor, path.parent)
    except ValueError as error:
        raise ModelError(
            f"cannot read the external data of '{path}': tensor '{plain(tensor.name)}' {error}"
        ) from error


def _checked_bytes(tensor: onnx.TensorProto, folder: Path) -> int:
    """Return the bytes that a tensor has in its file; a ValueError continues a sentence on it."""
    if problem := declared_problem(tensor):
        raise ValueError(problem)
    place = _place(tensor)
    shown = f"'{shortened(place.location, _SHOWN)}'"
    available = _bytes_in_file(folder, place, shown)
    needed = tensor_bytes(tensor)
    if available != needed:
        raise ValueError(f"has {available} bytes in {shown}, its shape and type need {needed}")
    return needed


def _read_tensor(tensor: onnx.TensorProto, folder: Path) -> None:
    for entry in list(tensor.external_data):  # onnx warns of keys that it does not know
        if entry.key not in ("location", "offset", "length"):
            tensor.external_data.remove(entry)
    try:
        load_external_data_for_tensor(tensor, str(folder))
    except (onnx.checker.ValidationError, OSError, RuntimeError, ValueError):
        raise ValueError(
            f"lies in '{shortened(_place(tensor).location, _SHOWN)}', which is no file of the "
            "model's folder, or a link out of it"
        ) from None


def _place(tensor: onnx.TensorProto) -> _Place:
    given = {entry.key: entry.value for entry in tensor.external_data}
    location = given.get("location", "")
    if not location:
        raise ValueError("names no file for its data")
    if not location.isprintable():
        raise ValueError(
            f"lies in '{shortened(location, _SHOWN)}', whose name has unprintable characters: "
            "rename the file, and correct its name in the model"
        )
    if os.path.isabs(location) or ".." in location.replace("\\", "/").split("/"):
        raise ValueError(
            f"lies in '{shortened(location, _SHOWN)}', outside the model's folder: put it "
            "into that folder, and name it in the model without a path"
        )
    numbers = {key: _number(key, given[key]) for key in ("offset", "length") if key in given}
    return _Place(location, numbers.get("offset", 0), numbers.get("length"))


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(
            f"has the {key} '{shortened(text, _SHOWN)}', which is not a number of bytes"
        )
    return int(text)


def _bytes_in_file(folder: Path, place: _Place, shown: str) -> int:
    try:
        size = regular_status(folder / place.location).st_size
    except FileNotFoundError:
        raise ValueError(f"lies in {shown}, which is missing in the model's folder") from None
    except OSError as error:
        raise ValueError(f"lies in {shown}: {error.strerror or error}") from None
    end = size if place.length is None else place.offset + place.length
    if max(place.offset, end) > size:
        raise ValueError(f"needs byte {max(place.offset, end)} of {shown}, which has {size}")
    return end - place.offset
