"""Reading a PyTorch checkpoint of tensors without PyTorch."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


def _strided(storage: np.ndarray, offset: int, size: tuple, stride: tuple) -> np.ndarray:
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps).copy()


class _Reader(pickle.Unpickler):
    """An unpickler of tensors, storages and ordered dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if name == "OrderedDict":
            return collections.OrderedDict
        if name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: tuple) -> tuple[str, str]:
        return pid[1], pid[2]


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint, by name, of either of PyTorch's formats."""
    storages: dict[str, np.ndarray] = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            root = archive.namelist()[0].split("/")[0]
            tensors = _Reader(io.BytesIO(archive.read(f"{root}/data.pkl"))).load()
            for kind, key in {storage for storage, *_ in tensors.values()}:
                storages[key] = np.frombuffer(archive.read(f"{root}/data/{key}"), _TYPES[kind])
    else:
        with open(path, "rb") as file:
            for _ in range(3):
                pickle.load(file)
            tensors = _Reader(file).load()
            kinds = {storage[1]: storage[0] for storage, *_ in tensors.values()}
            for key in pickle.load(file):
                (count,) = struct.unpack("<q", file.read(8))
                size = count * np.dtype(_TYPES[kinds[key]]).itemsize
                storages[key] = np.frombuffer(file.read(size), _TYPES[kinds[key]])
    return {name: _strided(storages[s[1]], *rest) for name, (s, *rest) in tensors.items()}
