"""Arrays from files, arrays at random, and arrays to a file, for ``neocpu run``."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from neocpu.schedules.errors import UsageError, did_you_mean
from neocpu.schedules.files import regular_status, replacing
from neocpu.tensor_spec import TensorSpec

AnyArray = np.ndarray[Any, Any]
Loaded = TypeVar("Loaded")


def read_archive(path: Path, specs: Sequence[TensorSpec]) -> dict[str, AnyArray]:
    """Read the inputs in an ``.npz`` file, by input name or, as ``arr_0, arr_1, …``, in order.

    Raises
    ------
    UsageError
        If the file cannot be read or is not an archive of plain arrays.
    """

    def read() -> dict[str, AnyArray]:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it is a single array; pass it with --input")
        with archive:
            return {name: archive[name] for name in archive.files}

    arrays = _read(path, read)
    known = {spec.name for spec in specs}
    if known.isdisjoint(arrays) and all(re.fullmatch(r"arr_\d+", name) for name in arrays):
        in_order = [arrays[name] for name in sorted(arrays, key=lambda name: int(name[4:]))]
        if len(in_order) == len(specs):
            return {spec.name: array for spec, array in zip(specs, in_order, strict=True)}
    return arrays


def read_named(texts: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, AnyArray]:
    """Read the inputs of repeated ``--input [NAME=]FILE.npy`` options.

    Raises
    ------
    UsageError
        If a name is missing, unknown or repeated, or a file cannot be read.
    """
    names = [spec.name for spec in specs]
    arrays: dict[str, AnyArray] = {}
    for text in texts:
        name, path = _split(text, names)
        if name in arrays:
            raise UsageError(f"--input {text}: input '{name}' is given twice")
        arrays[name] = _read(path, partial(_load_array, path))
    return arrays


def write_archive(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays to an ``.npz`` file: all of it appears at ``path`` or nothing does.

    Raises
    ------
    UsageError, ArtifactError
        If the folder is missing or read-only, or the disk is full.
    """
    # Not np.savez: it takes the names as keyword arguments, and an output may be called "file".
    size = sum(array.nbytes for array in arrays.values())
    with replacing(path, size) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _load_array(path: Path) -> AnyArray:
    loaded = np.load(path, allow_pickle=False)
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise ValueError("it is an archive of arrays; pass it with --inputs")
    return loaded


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


def _read(path: Path, read: Callable[[], Loaded]) -> Loaded:
    try:
        regular_status(path)
        return read()
    except FileNotFoundError:
        raise UsageError(f"no such input file: '{path}'") from None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        # numpy calls every unknown file a forbidden pickle.
        reason = "not a .npy or .npz file" if "pickle" in str(error) else str(error)
        raise UsageError(f"cannot read '{path}': {reason}") from error
