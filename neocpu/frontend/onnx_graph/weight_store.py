"""Store large weights of a model in a memory-mapped temporary file instead of its messages.

A compilation makes several forms of a model, one after the other. The messages of each refer to the
one copy in the file, as ONNX's external data does, and Relax constants are views of it. The kernel
may drop the pages of the file, and reads them again when they are needed.
"""

from __future__ import annotations

import mmap
import secrets
import tempfile
import weakref
from collections.abc import Iterable
from typing import BinaryIO, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import ArtifactError
from neocpu.frontend.onnx_graph.weightless_model import PACKED, tensor_bytes, without_initializers

LEAST_BYTES: Final = 1 << 16
"""Bytes of the smallest tensor that is stored; for smaller ones, the reference costs more."""

_ALIGNMENT: Final = 64
"""Alignment of each tensor in bytes: that of Relax constants, which then need no copy."""

_SCHEME: Final = "neocpu-weights:"
"""The prefix of the locations that refer to a store; no user's file has such a name."""


class _Mapping:
    """A part of a store: the tensors of one model, in a file without a name."""

    def __init__(self, file: BinaryIO) -> None:
        self.location = f"{_SCHEME}{secrets.token_hex(16)}"
        # Private and writeable, because DLPack wraps nothing that is read-only.
        view = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        self.data = np.frombuffer(view, np.uint8)


_MAPPINGS: Final[weakref.WeakValueDictionary[str, _Mapping]] = weakref.WeakValueDictionary()


class WeightStore:
    """The large weights of models; the owner of such a model must keep its store."""

    def __init__(self) -> None:
        self._mappings: list[_Mapping] = []

    def take(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of a model whose large weights are in this store.

        Malformed tensors stay in the model, where they are checked later. If the disk of temporary
        files is full, that is an `ArtifactError`.
        """
        light = without_initializers(model)
        moved: list[onnx.TensorProto] = []
        try:
            with tempfile.TemporaryFile(prefix="neocpu-weights-") as file:
                for tensor in model.graph.initializer:
                    own = light.graph.initializer.add()
                    if not _is_moved(tensor):
                        own.CopyFrom(tensor)
                        continue
                    _refer(own, tensor, file.tell())
                    moved.append(own)
                    data = tensor.raw_data
                    file.write(data)
                    file.write(bytes(-len(data) % _ALIGNMENT))
                file.flush()
                if moved:
                    self._map(file, moved)
        except OSError as error:
            raise ArtifactError(
                f"cannot keep the model's weights in {tempfile.gettempdir()}: {error.strerror}; "
                "free space there or set TMPDIR"
            ) from error
        return light

    def _map(self, file: BinaryIO, moved: Iterable[onnx.TensorProto]) -> None:
        mapping = _Mapping(file)
        for tensor in moved:
            tensor.external_data.add(key="location", value=mapping.location)
        _MAPPINGS[mapping.location] = mapping
        self._mappings.append(mapping)


def is_stored(tensor: onnx.TensorProto) -> bool:
    return uses_external_data(tensor) and _entry(tensor, "location").startswith(_SCHEME)


def bytes_of_tensor(tensor: onnx.TensorProto) -> Array:
    """Return the raw bytes of a tensor, without copying those in a store."""
    if not is_stored(tensor):
        return np.frombuffer(tensor.raw_data, np.uint8)
    first = int(_entry(tensor, "offset"))
    data = _MAPPINGS[_entry(tensor, "location")].data
    return data[first : first + int(_entry(tensor, "length"))]


def array_of(tensor: onnx.TensorProto) -> Array:
    """Return a tensor's elements, from the model or a store; they must not be changed."""
    if not is_stored(tensor):
        array: Array = numpy_helper.to_array(tensor)
        return array
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    elements: Array = bytes_of_tensor(tensor).view(dtype)
    return elements.reshape(tuple(tensor.dims))


def whole(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that other programs can read: itself, or a copy that contains all weights."""
    if not any(map(is_stored, model.graph.initializer)):
        return model
    found = without_initializers(model)
    for tensor in model.graph.initializer:
        own = found.graph.initializer.add()
        own.CopyFrom(tensor)
        if is_stored(tensor):
            own.ClearField("external_data")
            own.ClearField("data_location")
            own.raw_data = bytes_of_tensor(tensor).tobytes()
    return found


def _is_moved(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor is large, and its bytes are its elements in order."""
    if tensor.data_type not in _MOVED or not tensor.HasField("raw_data"):
        return False
    if uses_external_data(tensor) or tensor.HasField("segment") or min(tensor.dims, default=0) < 0:
        return False
    size = tensor_bytes(tensor)
    return size >= LEAST_BYTES and len(tensor.raw_data) == size


def _refer(own: onnx.TensorProto, tensor: onnx.TensorProto, offset: int) -> None:
    """Make a tensor equal to another, with its bytes at ``offset`` of the store."""
    for field, value in tensor.ListFields():
        if field.name in ("name", "data_type", "doc_string"):
            setattr(own, field.name, value)
        elif field.name in ("dims", "metadata_props"):
            getattr(own, field.name).MergeFrom(value)
    own.data_location = TensorProto.EXTERNAL
    own.external_data.add(key="offset", value=str(offset))
    own.external_data.add(key="length", value=str(tensor_bytes(tensor)))


def _entry(tensor: onnx.TensorProto, key: str) -> str:
    return next((str(entry.value) for entry in tensor.external_data if entry.key == key), "")


_MOVED: Final = frozenset(TensorProto.DataType.values()) - {
    TensorProto.UNDEFINED,
    TensorProto.STRING,
    *PACKED,
}
