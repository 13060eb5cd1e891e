"""Read ``.npy`` data from anybody, no larger than a model's input.

numpy's own reader trusts the header: it allocates what that declares, unpickles and tokenises. Here
the header is compared with the model's input before memory is allocated.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
import zipfile
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Final

import numpy as np

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.arguments import check_kind

MAGIC: Final = b"\x93NUMPY"
MAX_HEADER: Final = 1 << 14
"""The most bytes of a header. numpy writes about 120, and reads at most 10,000."""

_KEYS: Final = {"descr", "fortran_order", "shape"}
_PYTHON_2: Final = re.compile(r"(?<=\d)L(?=[,)])")
"""The letter that Python 2 wrote after each extent."""
_DESCR: Final = re.compile(r"[<>=|]?[a-zA-Z?]\d{0,4}")
"""The spelling of a plain dtype. Structures and dates are none that a model takes."""


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The properties of an array in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool  # whether the first index runs fastest

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(stream: IO[bytes], spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Read an array of an input's dtype, in either byte order, and shape, and nothing after it.

    Raises ValueError, whose message continues a sentence: the data are not ``.npy``, or cut short.
    """
    header = read_npy_header(stream)
    check_kind(spec, header.dtype, header.shape)
    return read_npy_data(stream, header)


def read_npy_data(stream: IO[bytes], header: NpyHeader) -> np.ndarray[Any, Any]:
    """Read the array after its header, whose rows may be reduced if it is in C order.

    Raises ValueError, whose message continues a sentence: the data are cut short.
    """
    dtype, shape = header.dtype, header.shape
    array = aligned_empty(shape[::-1] if header.fortran else shape, dtype)
    data = array.reshape(-1).view(np.uint8)
    _fill(stream, data.data)
    if dtype.kind == "b":
        np.not_equal(data, 0, out=data.view(bool))  # compiled code expects 1 for true
    return array.T if header.fortran else array


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header of an array, and none of its data.

    Raises ValueError, whose message continues a sentence: not ``.npy``, or no numbers.
    """
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError("not a .npy or .npz file")
    version = _exactly(stream, 2)[0]
    if version not in (1, 2, 3):
        raise ValueError(f"a .npy file of version {version}, which is unknown")
    length = int.from_bytes(_exactly(stream, 2 if version == 1 else 4), "little")
    if length > MAX_HEADER:
        raise ValueError(f"its header has {length} bytes, more than any array needs")
    fields = _literal(_exactly(stream, length), "utf-8" if version == 3 else "latin-1")
    if not isinstance(fields, dict) or fields.keys() != _KEYS:
        raise ValueError("its header is malformed")
    if not isinstance(fields["fortran_order"], bool):
        raise ValueError("its header has no valid order")
    return NpyHeader(_dtype(fields["descr"]), _shape(fields["shape"]), fields["fortran_order"])


def _literal(data: bytes, encoding: str) -> Any:
    try:
        with warnings.catch_warnings():  # Python warns of what looks like a mistake in source
            warnings.simplefilter("ignore")
            text = _PYTHON_2.sub("", data.decode(encoding).strip())
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError("its header is malformed") from None


def _dtype(descr: Any) -> np.dtype[Any]:
    if not isinstance(descr, str) or _DESCR.fullmatch(descr) is None:
        raise ValueError("it holds structures or dates, not numbers")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError):
        raise ValueError(f"its header has an unknown dtype, {descr!r}") from None
    if dtype.kind not in "biufc":
        raise ValueError(f"it holds {dtype.name} values, not numbers")
    return dtype


def _shape(shape: Any) -> tuple[int, ...]:
    # A boolean is an integer to Python, and numpy takes True for an extent of 1.
    if not isinstance(shape, tuple) or not all(type(each) is int and each >= 0 for each in shape):
        raise ValueError("its header has no valid shape")
    return shape


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("it is cut short")
    return data


def _fill(stream: IO[bytes], into: memoryview) -> None:
    done = 0
    while done < len(into):
        data = stream.read(min(len(into) - done, 1 << 22))
        if not data:
            raise ValueError("it is cut short")
        into[done : done + len(data)] = data
        done += len(data)


MAX_DIRECTORY: Final = 4 << 20
"""The most bytes of an archive's directory. In memory, a name takes some twenty times its bytes."""

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""numpy's compression methods. Others unpack whole blocks, however little is read."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open an archive for reading.

    Raises ValueError and zipfile.BadZipFile: it is none, or names too many files; and OSError.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("not a .npy or .npz file")
    if _directory_bytes(file) > MAX_DIRECTORY:
        raise ValueError("it names more files than any model has inputs")
    return zipfile.ZipFile(file)


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a file of an archive. Only the part that is read is unpacked.

    Raises ValueError, RuntimeError, NotImplementedError and zipfile.BadZipFile.
    """
    if archive.getinfo(name).compress_type not in _METHODS:
        raise ValueError("it is compressed in another way than numpy does")
    return archive.open(name)


def _directory_bytes(file: BinaryIO) -> int:
    """Return the bytes of a zip file's directory. Opening the file reads the whole directory."""
    # A private function: a reader of our own might find another record than zipfile does.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    return int(end[zipfile._ECD_SIZE])  # type: ignore[attr-defined]
