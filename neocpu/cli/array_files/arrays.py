"""Arrays from files and to a file, for ``neocpu run``."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import BITS, array_dtype
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import MissingFileError, UsageError, did_you_mean
from neocpu.foundation.files import regular_status, replacing
from neocpu.foundation.host import usable_memory
from neocpu.foundation.tensor_spec import TensorSpec, shapes_text
from neocpu.runtime.arguments import check_names
from neocpu.runtime.npy import MAGIC, open_archive, open_member, read_npy, read_npy_header
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature

if TYPE_CHECKING:
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.runtime.header import ArtifactHeader

AnyArray = np.ndarray[Any, Any]

ZIP: Final = b"PK"  # first bytes of a zip file, also of an empty one

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

    An array is unpacked only up to its input's size. Raises UsageError: the file is no archive of
    arrays of the inputs' names, dtypes and shapes.
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

    Raises UsageError: a name is missing, unknown or repeated, or a file does not fit.
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
    """Write an ``.npz`` entirely or not at all. Raises UsageError, ArtifactError: it cannot."""
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
    """A stream that cannot seek, so that `zipfile` writes it from beginning to end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.write, self.flush = stream.write, stream.flush


def _unpacked(archive: zipfile.ZipFile, name: str, spec: TensorSpec) -> AnyArray:
    with open_member(archive, name) as member:
        array = read_npy(member, spec)
        member.read(1)  # reading the end checks the checksum
    return array


def _input_names(members: Mapping[str, str], specs: Sequence[TensorSpec]) -> Mapping[str, str]:
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


Inputs: TypeAlias = Sequence[TensorSpec]


def chosen_inputs(header: ArtifactHeader, shapes: Mapping[str, Given]) -> list[Inputs]:
    """Return the inputs of the signature, or the batch of a set, that ``--shape`` selects.

    Without it, of all signatures, or the typical one where calls choose extents. Raises UsageError:
    there is none, or no memory for the batch or the extents.
    """
    if not shapes:
        return [each.inputs for each in header.each]
    try:
        found = header.of(shapes)
        if header.sized is not None:
            _check_memory(Signature(found.inputs, found.outputs))
        return [found.inputs]
    except UsageError:
        if header.sized is not None or (other := _other_batch(header, shapes)) is None:
            raise
        _check_memory(other)
        return [other.inputs]


def _other_batch(header: ArtifactHeader, shapes: Mapping[str, Given]) -> Signature | None:
    """Return the signature of a batch that is composed of others; None if there is none."""
    given = next(iter(shapes.values()))
    if not isinstance(given, tuple):  # a value, which no input has
        return None
    signatures = SignatureSet([Signature(each.inputs, each.outputs) for each in header.each])
    for each in signatures.all:
        other = each.with_rows(given[0])
        agrees = all(other.shapes.get(name) == shape for name, shape in shapes.items())
        if agrees and signatures.batch_plans([*other.shapes.values()]):
            return other
    return None


def _check_memory(signature: Signature) -> None:
    specs = (*signature.inputs, *signature.outputs)
    # Drawing and describing the arrays takes a copy in float64.
    needed = sum(math.prod(spec.shape) * (DTYPES[spec.dtype].bytes + 8) for spec in specs)
    if needed > (most := usable_memory()):
        raise UsageError(
            f"{shapes_text(signature.inputs)} needs {needed / 1e9:.1f} GB of memory, and this "
            f"process may use {most / 1e9:.1f} GB: give a smaller shape"
        )


def inputs_of_files(
    header: ArtifactHeader, archive: Path | None, named: Sequence[str]
) -> list[Inputs]:
    """Return the inputs that a call may have: where calls choose extents, those of its files."""
    if header.sized is None:
        return chosen_inputs(header, {})
    return chosen_inputs(header, shapes_in_files(archive, named, header.inputs))


def shapes_in_files(
    archive: Path | None, named: Sequence[str], specs: Sequence[TensorSpec]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that `read_inputs` reads from files, by input.

    Files that it refuses may lack.
    """
    found: dict[str, tuple[int, ...]] = {}
    if archive is not None:
        with _reading(archive), open(archive, "rb") as file, open_archive(file) as opened:
            members = {name.removesuffix(".npy"): name for name in opened.namelist()}
            names = _input_names(members, specs)
            for spec in specs:
                if spec.name in names:
                    with open_member(opened, names[spec.name]) as member:
                        found[spec.name] = read_npy_header(member).shape
    for text in named:
        name, path = _split(text, [spec.name for spec in specs])
        with _reading(path), open(path, "rb") as file:
            if not file.peek(len(ZIP)).startswith(ZIP):
                found[name] = read_npy_header(file).shape
    return found


def read_inputs(
    archive: Path | None, named: Sequence[str], choices: Sequence[Inputs]
) -> dict[str, AnyArray]:
    """Read the inputs of the first of ``choices`` that fits; `named`: ``[NAME=]FILE.npy``.

    Raises UsageError: the files fit none of the choices.
    """
    problems: dict[str, UsageError] = {}
    for specs in choices:
        try:
            arrays = read_archive(archive, specs) if archive is not None else {}
            for name, array in read_named(named, specs).items():
                if name in arrays:
                    raise UsageError(f"input '{name}' is given both by --inputs and by --input")
                arrays[name] = array
        except UsageError as error:
            problems.setdefault(str(error), error)
        else:
            return arrays
    if len(problems) > 1:
        listed = "; ".join(map(shapes_text, choices))
        hint = "; --shape names another batch" if _differ_in_batch(choices) else ""
        raise UsageError(
            f"the inputs have none of the shapes that the model is compiled for: {listed}{hint}"
        )
    raise next(iter(problems.values()))


def _differ_in_batch(choices: Sequence[Inputs]) -> bool:
    signatures = SignatureSet([Signature(tuple(specs), ()) for specs in choices])
    return any(signatures.batch_plans([*each.shapes.values()]) for each in signatures.all)
