"""The functions and structures of ``neocpu.h`` for Python, by ctypes.

`Options` is ``neocpu_options``, and so on. Other threads run during calls.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Final

from neocpu.core import LIBRARY
from neocpu.foundation.errors import (
    ArtifactError,
    MissingArtifactError,
    NeoCPUError,
    TargetError,
    UsageError,
)

_ERRORS: Final[dict[int, type[NeoCPUError]]] = {
    error.exit_code: error for error in (NeoCPUError, UsageError, TargetError, ArtifactError)
}


class Options(ctypes.Structure):
    _fields_ = (
        ("threads", c_int),
        ("trust_weights", c_int),
        ("huge_pages", c_int),
        ("pool", c_void_p),
        ("pin", c_int),
    )


class Picture(ctypes.Structure):
    _fields_ = (("layout", c_char_p), ("colours", c_char_p), ("fit", c_char_p))


class Spec(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_size_t),
        ("bytes", c_size_t),
        ("bounded", c_int),
        ("picture", POINTER(Picture)),
    )


class Signature(ctypes.Structure):
    _fields_ = (("inputs", POINTER(Spec)), ("outputs", POINTER(Spec)))


class Size(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("least", c_int64),
        ("most", c_int64),
        ("step", c_int64),
        ("typical", c_int64),
        ("input", c_size_t),
        ("axis", c_size_t),
    )


class Description(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("target", c_char_p),
        ("threads", c_int),
        ("inputs", POINTER(Spec)),
        ("input_count", c_size_t),
        ("outputs", POINTER(Spec)),
        ("output_count", c_size_t),
        ("signatures", POINTER(Signature)),
        ("signature_count", c_size_t),
        ("packing", c_uint64),
        ("sizes", POINTER(Size)),
        ("size_count", c_size_t),
    )


class Input(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("bytes", c_size_t))


class Output(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("bytes", c_size_t), ("rows", c_size_t))


class Variant(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("code_size", c_uint64),
        ("weights_size", c_uint64),
        ("metadata", c_char_p),
        ("obstacle", c_char_p),
    )


class Contents(ctypes.Structure):
    _fields_ = (
        ("file", c_int),
        ("variants", POINTER(Variant)),
        ("count", c_size_t),
        ("loadable", c_size_t),
    )


class Event(ctypes.Structure):
    _fields_ = (
        ("begin", c_uint64),
        ("end", c_uint64),
        ("kernel", c_char_p),
        ("run", c_int32),
        ("call", c_int32),
        ("loop", c_int32),
        ("task", c_int32),
        ("thread", c_int32),
    )


_ARRAYS: Final = (POINTER(Input), c_size_t, POINTER(Output), c_size_t)

# The parameter types of functions that return a status. Functions with other results follow.
_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "neocpu_check_weights": (c_void_p, c_size_t, POINTER(c_uint64)),
    "neocpu_extents": (c_void_p, POINTER(c_int64), POINTER(c_int64)),
    "neocpu_inspect": (c_char_p, POINTER(c_void_p)),
    "neocpu_load": (c_char_p, POINTER(Options), POINTER(c_void_p)),
    "neocpu_load_stream": (c_void_p, POINTER(Options), POINTER(c_void_p)),
    "neocpu_open_memory": (c_void_p, c_size_t, POINTER(Options), POINTER(c_void_p)),
    "neocpu_pool_start": (c_int, c_int, POINTER(c_void_p)),
    "neocpu_verify": (c_void_p,),
    "neocpu_run_signature": (c_void_p, c_size_t, *_ARRAYS),
    "neocpu_run_sizes": (c_void_p, POINTER(c_int64), *_ARRAYS),
    "neocpu_trace_start": (c_void_p,),
    "neocpu_trace_stop": (c_void_p, POINTER(POINTER(Event)), POINTER(c_size_t)),
}
_OTHERS: Final[dict[str, tuple[Any, ...]]] = {
    "neocpu_checksums": (None, c_void_p, c_size_t, c_void_p),
    "neocpu_contents_free": (None, c_void_p),
    "neocpu_describe": (POINTER(Description), c_void_p),
    "neocpu_error": (c_char_p,),
    "neocpu_free": (None, c_void_p),
    "neocpu_intercept": (None, c_void_p, c_void_p),
    "neocpu_metadata": (c_char_p, c_void_p),
    "neocpu_pool_free": (None, c_void_p),
    "neocpu_pool_threads": (c_int, c_void_p),
    "neocpu_pool_wait": (None, c_void_p),
}


@functools.cache
def library() -> Any:
    """Return the loaded library, whose functions raise their errors as exceptions."""
    try:
        loaded = ctypes.CDLL(os.fspath(LIBRARY))
    except OSError as error:
        reason = str(error) if LIBRARY.exists() else f"there is no {LIBRARY}"
        raise TargetError(
            f"cannot load neocpu's runtime: {reason}; install neocpu or neocpu-runtime again"
        ) from error
    for name, types in _CALLS.items():
        function = loaded[name]
        function.argtypes, function.restype = types, c_int
        function.errcheck = _raise  # type: ignore[assignment]
        setattr(loaded, name, function)
    for name, (result, *taken) in _OTHERS.items():
        function = loaded[name]
        function.argtypes, function.restype = taken, result
        setattr(loaded, name, function)
    return loaded


def made_by(function: Callable[..., Any], *arguments: Any) -> int:
    """Call a function with an output parameter after these arguments; return the address in it."""
    address = c_void_p()
    function(*arguments, byref(address))
    assert address.value is not None
    return address.value


def encoded_path(path: str | os.PathLike[str]) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ArtifactError(f"cannot open artifact {os.fspath(path)!r}: embedded null byte")
    return encoded


def _raise(status: int, _: Any, __: Any) -> int:
    if status:
        message = library().neocpu_error().decode(errors="replace")
        kind = _ERRORS.get(status, NeoCPUError)
        if kind is ArtifactError and message.endswith(os.strerror(errno.ENOENT)):
            kind = MissingArtifactError
        raise kind(message)
    return status


class Handle:
    """An object of the library, freed with the last reference to this handle.

    Every call keeps a reference, so that nothing is freed during it. ``memory`` is the memory that
    the object uses, and is freed after it.
    """

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, address: int, free: Callable[[int], None], memory: Any = None) -> None:
        self.address: Final = address
        self.memory: Final = memory
        # An interpreter that exits frees nothing: other threads may be amid calls.
        weakref.finalize(self, _free, free, address, memory).atexit = False


def _free(free: Callable[[int], None], address: int, _: Any) -> None:
    free(address)
