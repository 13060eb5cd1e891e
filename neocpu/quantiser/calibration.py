"""Calibration data: pictures of a folder, arrays of a file, or samples from a user's function.

Nothing leaves the machine.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import array_dtype
from neocpu.foundation.errors import MissingFileError, UsageError
from neocpu.foundation.foreign_code import foreign_code, one_line
from neocpu.foundation.plain_text import shortened
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.quantiser.observation import Feeds, require_finite
from neocpu.quantiser.pictures import Preprocessing, find_pictures, read_picture
from neocpu.quantiser.ranges import Array
from neocpu.quantiser.stored_arrays import StoredArray, StoredArrays

Source: TypeAlias = str | Path | Array | Mapping[str, Array] | Iterable[Any]
"""A path like on the command line, an array of samples, arrays by input, or samples."""

_END: Final = object()
_MAX_NAMES: Final = 200  # characters of arrays' names in a message: a file may have many arrays


def read_samples(
    source: Source, specs: Sequence[TensorSpec], limit: int, pictures: Preprocessing
) -> list[Feeds]:
    """Return at most ``limit`` samples, each with all inputs in their shapes.

    An array may have several samples along its first axis. A rest that does not fill the model's
    batch is left out. Raises UsageError if there are no samples; one does not fit the model's
    inputs, or is infinite or NaN; or the user's function raises.
    """
    if isinstance(source, str | Path):
        samples = _of_path(str(source), specs, limit, pictures)
    elif isinstance(source, np.ndarray):
        samples = _of_arrays(_by_name(source, specs, "the array"), specs, "the array", limit)
    elif isinstance(source, Mapping):
        samples = _of_arrays(source, specs, "the arrays", limit)
    elif not isinstance(source, Iterable):
        raise UsageError(
            "calibration data are a path, an array of samples, arrays by input, or samples, "
            f"got {type(source).__name__}"
        )
    else:
        samples = _of_iterable(lambda: source, specs, "the calibration data", limit)
    if not samples:
        raise UsageError("there are no calibration data; give at least one sample")
    for number, feeds in enumerate(samples):
        for name, values in feeds.items():
            require_finite(number, name, values)
    return samples


def _of_path(
    text: str, specs: Sequence[TensorSpec], limit: int, pictures: Preprocessing
) -> list[Feeds]:
    path = Path(text)
    if path.is_dir():
        return _of_folder(path, specs, limit, pictures)
    if path.suffix in (".npz", ".npy") and path.is_file():
        with StoredArrays(path) as stored:
            arrays: Mapping[str, StoredArray] = stored
            if set(stored) in ({""}, {"arr_0"}):
                arrays = _by_name(next(iter(stored.values())), specs, str(path))
            return _of_arrays(arrays, specs, str(path), limit)
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _of_iterable(_function(Path(file), name), specs, text, limit)
    known = "a folder of pictures, an .npz file or loader.py:function"
    if not path.exists():
        raise MissingFileError(f"{text} is missing; calibrate with {known}")
    raise UsageError(f"cannot calibrate with {text}: give {known}")


def _of_folder(
    folder: Path, specs: Sequence[TensorSpec], limit: int, how: Preprocessing
) -> list[Feeds]:
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(
            f"the model has {len(specs)} inputs ({names}), and pictures are for one: "
            "give calibration data as .npz or loader.py:function"
        )
    (spec,) = specs
    found = find_pictures(folder)
    batch = spec.shape[0]
    # Evenly spread, because folders often have one class after the other.
    places = np.linspace(0, len(found) - 1, min(len(found), limit * batch)).astype(int)
    images = [read_picture(found[place], spec, how) for place in places]
    return _of_arrays({spec.name: np.concatenate(images)}, specs, str(folder), limit)


def _by_name(array: Any, specs: Sequence[TensorSpec], where: str) -> dict[str, Any]:
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"{where} has one array and the model {len(specs)} inputs: {names}")
    return {specs[0].name: array}


def _function(path: Path, name: str) -> Callable[[], Iterable[Any]]:
    if not path.is_file():
        raise MissingFileError(
            f"{path} is missing, whose function '{name}' is to return calibration data: check the "
            "path"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)

    with foreign_code(lambda error: UsageError(f"{path} cannot be imported: {one_line(error)}")):
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{path} has no function '{name}'")
    return function  # type: ignore[no-any-return]


def _of_iterable(
    make: Callable[[], Iterable[Any]], specs: Sequence[TensorSpec], where: str, limit: int
) -> list[Feeds]:
    """Take samples: mappings by input name, or arrays if there is only one input."""
    found: list[Feeds] = []

    def failure(error: BaseException) -> UsageError:
        return UsageError(f"{where} failed after {len(found)} samples: {one_line(error)}")

    with foreign_code(failure):
        items = iter(make())
    while len(found) < limit:
        with foreign_code(failure):
            item = next(items, _END)
            given = dict(item) if isinstance(item, Mapping) else None
        if item is _END:
            break
        arrays = _by_name(item, specs, where) if given is None else given
        found += _of_arrays(arrays, specs, f"{where}, sample {len(found)}", limit - len(found))
    return found


def _of_arrays(
    given: Mapping[str, Any], specs: Sequence[TensorSpec], where: str, limit: int
) -> list[Feeds]:
    """Cut arrays along their first axis into samples; stored ones are read no further."""
    missing = [spec.name for spec in specs if spec.name not in given]
    if missing:
        has = shortened(", ".join(sorted(map(str, given))) or "none", _MAX_NAMES)
        raise UsageError(f"{where} has no array for input '{missing[0]}'; it has {has}")
    arrays = {spec.name: _array(given[spec.name], spec, where) for spec in specs}
    counts = {_count(arrays[spec.name], spec, where) for spec in specs}
    if len(counts) > 1:
        raise UsageError(f"{where} has arrays of different numbers of samples: {sorted(counts)}")
    number = min(counts.pop(), limit)
    wanted = {spec.name: _read(arrays[spec.name], spec, number) for spec in specs}
    return [{spec.name: _cut(wanted[spec.name], spec, index, where) for spec in specs}
            for index in range(number)]  # fmt: skip


def _array(value: Any, spec: TensorSpec, where: str) -> Array | StoredArray:
    if isinstance(value, StoredArray):
        array: Array | StoredArray = value
    else:
        # This fails for a list of unequal lists, and may run an object's own code.
        failure = f"{where} has no array for input '{spec.name}'"
        with foreign_code(lambda error: UsageError(f"{failure}: {one_line(error)}")):
            array = np.asarray(value)
    if np.ma.is_masked(value):
        raise UsageError(
            f"{where} has a masked array for input '{spec.name}'; fill its elements with filled()"
        )
    if not _is_real(array.dtype):
        raise UsageError(
            f"{where} has {array.dtype} for input '{spec.name}', no real numbers; give {spec.dtype}"
        )
    return array


def _read(array: Array | StoredArray, spec: TensorSpec, samples: int) -> Array:
    if not isinstance(array, StoredArray):
        return array
    if array.shape == spec.shape[1:] and (spec.shape or not array.ndim):
        return array.read(None)  # one sample without a batch, or a single number
    return array.read(samples * (spec.shape[0] if spec.shape else 1))


def _count(array: Array | StoredArray, spec: TensorSpec, where: str) -> int:
    if not spec.shape and array.ndim == 1:
        return array.shape[0]
    if array.shape == spec.shape[1:] and (not spec.shape or spec.shape[0] == 1):
        return 1
    fits = bool(spec.shape) and array.ndim > 0 and array.shape[1:] == spec.shape[1:]
    if not fits or array.shape[0] < spec.shape[0]:
        raise UsageError(
            f"{where} has shape {_shape(array.shape)} for input '{spec.name}', which is "
            f"{_shape(spec.shape)}; its first axis alone may be longer"
        )
    return int(array.shape[0] // spec.shape[0])


def _is_real(dtype: np.dtype[Any]) -> bool:
    """Whether elements are real numbers: numpy's own, or narrow ones of ml_dtypes."""
    return dtype.kind in "biuf" or dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def _cut(array: Array, spec: TensorSpec, index: int, where: str) -> Array:
    """Return one sample in the input's type, which must be able to represent its values."""
    if not spec.shape:
        part: Array = array if array.ndim == 0 else array[index]
    elif array.shape == spec.shape[1:]:
        part = array[None]
    else:
        part = array[index * spec.shape[0] : (index + 1) * spec.shape[0]]
    with np.errstate(all="ignore"):  # infinities are refused later, with the number of the sample
        sample: Array = np.asarray(part, array_dtype(spec.dtype), order="C")
    if sample.dtype.kind in "biu" and not np.array_equal(sample, part):
        raise UsageError(
            f"{where} has {part.dtype} for input '{spec.name}', which is {spec.dtype}: it holds "
            "values that this type lacks"
        )
    return sample


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a single number"
