"""Arrays from files and to a file, for ``neocpu run``."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from neocpu.foundation.bfloat16 import BITS, array_dtype
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.errors import MissingFileError, UsageError, did_you_mean
from neocpu.foundation.files import regular_status, replacing
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.inputs import check_names
from neocpu.runtime.npy import MAGIC, read_npy
from neocpu.runtime.npz import open_archive, open_member

AnyArray = np.ndarray[Any, Any]

ZIP: Final = b"PK"
"""First bytes of a zip file, also of an empty one."""

# Errors of a zip file: no archive, cut short, damaged, encrypted, of an unknown method or version.
_DAMAGED: Final = (
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    NotImplementedError,
    OverflowError,
    struct.error,
)


def read_archive(path: Path, specs: Sequence[TensorSpec]) -> dict[str, AnyArray]:
    """Read the inputs in an ``.npz`` file, by input name or, as ``arr_0, arr_1, …``, in order.

    No more of an array is unpacked than its input takes.

    Raises UsageError: the file cannot be read or is not an archive of arrays of the inputs' names,
    dtypes and shapes.
    """
    with _reading(path), open(path, "rb") as file:
        if file.peek(len(MAGIC)).startswith(MAGIC):
            raise ValueError("it is a single array; pass it with --input")
        with open_archive(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            names = _input_names(members, specs)
            # Missing inputs may be given by --input.
            check_names(specs, dict.fromkeys((*names, *(spec.name for spec in specs))), "input")
            given = (spec for spec in specs if spec.name in names)
            return {spec.name: _unpacked(archive, names[spec.name], spec) for spec in given}


def read_named(texts: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, AnyArray]:
    """Read the inputs of repeated ``--input [NAME=]FILE.npy`` options.

    Raises UsageError: a name is missing, unknown or repeated, or a file cannot be read or is of
    another dtype or shape.
    """
    by_name = {spec.name: spec for spec in specs}
    arrays: dict[str, AnyArray] = {}
    for text in texts:
        name, path = _split(text, list(by_name))
        if name in arrays:
            raise UsageError(f"--input {text}: input '{name}' is given twice")
        with _reading(path), open(path, "rb") as file:
            if file.peek(len(ZIP)).startswith(ZIP):
                raise ValueError("it is an archive of arrays; pass it with --inputs")
            arrays[name] = read_npy(file, by_name[name])
    return arrays


def write_archive(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays to an ``.npz`` file: either all of it appears at ``path`` or nothing does.

    Raises UsageError or ArtifactError: the folder is missing or read-only, or the disk is full.
    """
    # Not np.savez: it takes the names as keyword arguments, and an output may be called "file".
    size = sum(array.nbytes for array in arrays.values())
    with (
        replacing(path, size) as stream,
        zipfile.ZipFile(_forward_only(stream, path), "w") as archive,
    ):
        for name, array in arrays.items():
            # .npy files have no bfloat16; uint16 has the same bits.
            stored = array.view(BITS) if array.dtype == array_dtype(BFLOAT16) else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, stored, allow_pickle=False)


def _forward_only(stream: BinaryIO, path: Path) -> Any:
    """Return a stream that cannot seek if ``path`` is a device, whose position is undefined."""
    return stream if path.is_file() or not path.exists() else _ForwardOnly(stream)


class _ForwardOnly:
    """A stream without positions, which `zipfile` writes from beginning to end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.write, self.flush = stream.write, stream.flush


def _unpacked(archive: zipfile.ZipFile, name: str, spec: TensorSpec) -> AnyArray:
    with open_member(archive, name) as member:
        array = read_npy(member, spec)
        member.read(1)  # reading the end checks the checksum
    return array


def _input_names(members: Mapping[str, str], specs: Sequence[TensorSpec]) -> Mapping[str, str]:
    """Return an archive's members by the names of their inputs."""
    if {spec.name for spec in specs}.isdisjoint(members) and len(members) == len(specs):
        in_order = [members.get(f"arr_{index}") for index in range(len(specs))]
        named = zip(specs, in_order, strict=True)
        if None not in in_order:
            return {spec.name: member for spec, member in named if member is not None}
    return members


def _split(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if equals and (name in names or not Path(text).exists()):
        if name not in names:
            known = ", ".join(names)
            raise UsageError(
                f"--input {text}: the model has no input '{name}', only {known}"
                f"{did_you_mean(name, names)}"
            )
        return name, Path(path)
    if len(names) != 1:
        raise UsageError(
            f"--input {text}: the model has {len(names)} inputs ({', '.join(names)}); say which "
            "one, as in NAME=FILE.npy"
        )
    return names[0], Path(text)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn all errors of reading a file into a `UsageError` that names it."""
    try:
        regular_status(path)
        yield
    except UsageError as error:  # first, because some are an OSError or a ValueError too
        raise UsageError(f"'{path}': {error}") from None
    except FileNotFoundError:
        raise MissingFileError(f"no such input file: '{path}'") from None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror or error}") from error
    except _DAMAGED as error:
        raise UsageError(f"cannot read '{path}': {error}") from error
