"""Read an ONNX model from a path, bytes or a ModelProto, and report what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from neocpu.foundation.errors import ArgumentTypeError, MissingModelError, ModelError
from neocpu.foundation.files import read_file
from neocpu.frontend.checks.tensor_check import all_tensors
from neocpu.frontend.checks.text_check import refuse_broken_texts
from neocpu.frontend.external_data import read_external_data
from neocpu.frontend.foreign_formats import foreign_file, foreign_folder
from neocpu.frontend.onnx_graph.weight_store import WeightStore, is_stored
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
    """Return a copy of the caller's model as a ModelProto.

    External tensor data is read from the model file's own folder only. Sparse tensors become dense
    ones. A store takes large weights, which are not in the returned model then; the owner of the
    model must keep the store.

    Anything wrong with the file or its external data is a `ModelError`.
    """
    found = _read(model, weights)
    make_dense(found, name_of(model))
    return found


def name_of(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> str:
    """Return the name of a model for messages: its path, if it has one."""
    return "the model" if isinstance(model, bytes | onnx.ModelProto) else f"'{Path(model)}'"


def _read(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, weights: WeightStore | None
) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        where = "the given ModelProto"
        refuse_broken_texts(model, where)
        _refuse_external_data(model, where, _BY_PATH)
        if weights is not None:
            return weights.take(model)
        own = onnx.ModelProto()
        own.CopyFrom(model)
        return own
    if isinstance(model, bytes):
        where = "the given bytes object"
        proto = _parse(model, where)
        _refuse_external_data(proto, where, _BY_PATH)
        return proto if weights is None else weights.take(proto)
    if not isinstance(model, str | os.PathLike):
        raise _no_model(model)
    proto = _read_path(Path(model))
    return proto if weights is None else weights.take(proto)


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
            f"{where} keeps {len(outside)} tensors (first '{outside[0]}') in external files; {mend}"
        )
