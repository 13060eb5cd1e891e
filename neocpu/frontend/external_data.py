"""Read weights from files beside the model's, after checking where they are said to be.

onnx makes sure that no symbolic link leads out of the folder. Its errors for missing files and
impossible offsets are in the words of C++ and Python, and it cuts a name off at its first zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import onnx
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from neocpu.foundation.errors import ModelError
from neocpu.foundation.files import regular_status
from neocpu.foundation.host import usable_memory
from neocpu.foundation.plain_text import plain, shortened
from neocpu.frontend.checks.tensor_check import all_tensors, declared_problem
from neocpu.frontend.onnx_graph.weightless_model import tensor_bytes

_T = TypeVar("_T")
_SHOWN = 100
"""Characters of a file's name that a message quotes."""


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
        _each(_read, tensor, path)


def _each(step: Callable[[onnx.TensorProto, Path], _T], tensor: onnx.TensorProto, path: Path) -> _T:
    """Apply a function to a tensor and the model's folder; an error names the tensor and file."""
    try:
        return step(tensor, path.parent)
    except ValueError as error:
        raise ModelError(
            f"cannot read the external data of '{path}': tensor '{plain(tensor.name)}' {error}"
        ) from error


def _checked_bytes(tensor: onnx.TensorProto, folder: Path) -> int:
    """Return the number of a tensor's bytes, which its file has.

    A ValueError continues a sentence that begins with the tensor, here and below.
    """
    if problem := declared_problem(tensor):
        raise ValueError(problem)
    place = _place(tensor)
    shown = f"'{shortened(place.location, _SHOWN)}'"
    available = _bytes_in_file(folder, place, shown)
    needed = tensor_bytes(tensor)
    if available != needed:
        raise ValueError(f"has {available} bytes in {shown}, its shape and type need {needed}")
    return needed


def _read(tensor: onnx.TensorProto, folder: Path) -> None:
    """Read a tensor that was checked."""
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
        raise ValueError("is said to lie in another file, which has no name")
    if not location.isprintable():
        raise ValueError(
            f"lies in '{shortened(location, _SHOWN)}', whose name has characters that no name of "
            "a file should have"
        )
    if os.path.isabs(location) or ".." in location.replace("\\", "/").split("/"):
        raise ValueError(
            f"lies in '{shortened(location, _SHOWN)}', outside the model's folder: put the file "
            "there, and name it alone"
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
    """Return the number of bytes that a tensor has in its file."""
    try:
        size = regular_status(folder / place.location).st_size
    except FileNotFoundError:
        raise ValueError(f"lies in {shown}, which is missing in the model's folder") from None
    except OSError as error:
        raise ValueError(f"lies in {shown}: {error.strerror or error}") from None
    end = size if place.length is None else place.offset + place.length
    if max(place.offset, end) > size:
        raise ValueError(f"lies in {shown} up to byte {max(place.offset, end)} of {size}")
    return end - place.offset
