"""TVM's stable C interface (``tvm/ffi/c_api.h``, ``dlpack.h``), as far as running a model needs it.

The Python package ``tvm_ffi`` has all of it and takes 90 ms to import. Both use the same library,
so they get along in one process.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from neocpu.runtime.native import NativeLibraries, find_libraries

S = TypeVar("S")
T = TypeVar("T")

# TVMFFITypeIndex
_NONE, _INT, _BOOL, _FLOAT = 0, 1, 2, 3
_RAW_STRING, _SMALL_STRING, _STRING = 8, 11, 65
_FUNCTION, _TENSOR, _ARRAY = 68, 70, 71
_FIRST_OBJECT: Final = 64

_HEADER: Final = 24
"""Bytes of a ``TVMFFIObject``: what an object holds lies behind them."""

_CPU: Final = 1
"""``kDLCPU``."""

_CODES: Final = {"i": 0, "u": 1, "f": 2, "b": 6}
"""numpy's kinds as ``DLDataTypeCode``."""

_DTYPES: Final = {
    (_CODES[dtype.kind], 8 * dtype.itemsize): dtype
    for dtype in map(
        np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    )
}
"""Code and bits of DLPack -> numpy's dtype."""


class FfiError(RuntimeError):
    """A call into TVM's runtime failed; the message is the library's, in one line."""


class _Value(ctypes.Structure):
    """``TVMFFIAny``: a number, or a pointer to an object."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("length", ctypes.c_uint32),
        ("integer", ctypes.c_int64),
    )


class _Bytes(ctypes.Structure):
    """``TVMFFIByteArray``, as an argument: it keeps the bytes alive."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Sequence(ctypes.Structure):
    """The beginning of ``TVMFFISeqCell``."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64))


class DLTensor(ctypes.Structure):
    """DLPack's description of an array, wherever it lies."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self.extents[: self.ndim])

    @property
    def address(self) -> int:
        """Where the first element lies."""
        return (self.data or 0) + int(self.byte_offset)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array itself, C-contiguous as TVM's are; valid as long as the tensor."""
        shape = self.shape
        dtype, memory = _layout(shape, self.code, self.bits)
        return np.ndarray(shape, dtype, memory.from_address(self.address))


@functools.lru_cache(maxsize=1024)
def _layout(shape: tuple[int, ...], code: int, bits: int) -> tuple[np.dtype[Any], Any]:
    """Return numpy's dtype of such tensors, and ctypes' type of their memory."""
    dtype = _DTYPES[code, bits]
    return dtype, ctypes.c_char * (math.prod(shape) * dtype.itemsize)


_SafeCall = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(_Value),
    ctypes.c_int32,
    ctypes.POINTER(_Value),
)


class Object:
    """A counted reference to an object of TVM's, given back when this is collected.

    In a child of the process that made it nothing is given back: other threads may have held the
    library's locks when the process forked.
    """

    __slots__ = ("_library", "_process", "handle")

    def __init__(self, library: Ffi, handle: int) -> None:
        self.handle = handle
        self._library = library
        self._process = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._process:
            self._library.release(self.handle)


class Tensor(Object):
    """A tensor over memory of ours, which must outlive the calls that read or write it."""

    __slots__ = ("content",)

    def __init__(self, library: Ffi, handle: int) -> None:
        super().__init__(library, handle)
        self.content = DLTensor.from_address(handle + _HEADER)


class Function(Object):
    """A function of TVM's."""

    __slots__ = ("_callback",)

    def __init__(self, library: Ffi, handle: int, callback: Any = None) -> None:
        super().__init__(library, handle)
        self._callback = callback  # what TVM calls, where the function is ours

    def __call__(self, *arguments: int | str | Object) -> Any:
        """Call it with integers, strings and objects; return an integer, an object or None."""
        # The encoded strings must live until the call is over.
        encoded = [one.encode() if isinstance(one, str) else one for one in arguments]
        values = (_Value * len(encoded))(*map(_value, encoded))
        result, handle = _Value(), ctypes.c_void_p(self.handle)
        status = self._library.call(handle, values, len(encoded), ctypes.byref(result))
        self._library.check(status)
        return self._library.take(result)

    def bind(self, arguments: Sequence[Tensor]) -> BoundFunction:
        """Return the function with arguments that are the same in every call."""
        return BoundFunction(self._library, self, arguments)


class BoundFunction:
    """A function and its arguments, ready to be called with little ado, by one thread at a time."""

    __slots__ = ("_arguments", "_function", "_library", "_native", "_result")

    def __init__(self, library: Ffi, function: Function, arguments: Sequence[Tensor]) -> None:
        self._library = library
        self._function = function
        self._arguments = tuple(arguments)
        self._result = _Value()
        self._native = (
            ctypes.c_void_p(function.handle),
            (_Value * len(arguments))(*map(_value, arguments)),
            ctypes.c_int32(len(arguments)),
            ctypes.byref(self._result),
        )

    def __call__(self, read: Callable[[list[DLTensor], S], T], state: S) -> T:
        """Call the function; return what ``read`` makes of the tensors it returns, and ``state``.

        They live until ``read`` returns.

        Raises
        ------
        FfiError
            If the call fails.
        """
        result = self._result
        result.kind = _NONE
        self._library.check(self._library.call(*self._native))
        try:
            return read(_tensors(result), state)
        finally:
            if result.kind >= _FIRST_OBJECT:
                self._library.release(result.integer)


class Ffi:
    """The loaded libraries. One per process: see `runtime`."""

    def __init__(self, libraries: NativeLibraries) -> None:
        self.libraries = libraries
        # By these paths, so that a process that imports TVM, before or after, has the same ones.
        # What an artifact needs of them it finds among the symbols of the whole process.
        library = ctypes.CDLL(str(libraries.ffi), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(libraries.runtime), mode=ctypes.RTLD_GLOBAL)
        handle = ctypes.POINTER(ctypes.c_void_p)
        # Runs without Python's lock. No prototype: its arguments are C's already.
        self.call = library.TVMFFIFunctionCall
        self._get_global = _prototype(
            library.TVMFFIFunctionGetGlobal, ctypes.POINTER(_Bytes), handle
        )
        self._create_function = _prototype(
            library.TVMFFIFunctionCreate, ctypes.c_void_p, _SafeCall, ctypes.c_void_p, handle
        )
        self._create_view = _prototype(
            library.TVMFFITensorCreateUnsafeView,
            ctypes.c_void_p,
            ctypes.POINTER(DLTensor),
            handle,
        )
        self._move_error = _prototype(library.TVMFFIErrorMoveFromRaised, handle)
        self._move_error.restype = None
        self._set_error = _prototype(
            library.TVMFFIErrorSetRaisedFromCStr, ctypes.c_char_p, ctypes.c_char_p
        )
        self._set_error.restype = None
        # With Python's lock held: giving it up invites another thread to take it, for longer than
        # this lasts.
        locked = ctypes.PyDLL(str(libraries.ffi))
        self.release = _prototype(locked.TVMFFIObjectDecRef, ctypes.c_void_p)

    def function(self, name: str) -> Function:
        """Return a function that TVM registers under a name.

        Raises
        ------
        FfiError
            If there is none.
        """
        found, key = ctypes.c_void_p(), name.encode()
        self.check(self._get_global(_Bytes(key, len(key)), found))
        if not found.value:
            raise FfiError(f"TVM's runtime has no function '{name}'")
        return Function(self, found.value)

    def load_module(self, path: str) -> Object:
        """Open a shared library that TVM compiled.

        Raises
        ------
        FfiError
            If the dynamic loader refuses it.
        """
        module = self.function("ffi.Module.load_from_file.so")(path, "so")
        assert isinstance(module, Object)
        return module

    def member(self, module: Object, name: str) -> Function:
        """Return a function of a module.

        Raises
        ------
        FfiError
            If there is none.
        """
        found = self.function("ffi.ModuleGetFunction")(module, name, 0)
        if not isinstance(found, Function):
            raise FfiError(f"the module has no function '{name}'")
        return found

    def tensor(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
        """Describe C-contiguous memory as a tensor. Nothing is kept alive by it.

        Parameters
        ----------
        address : int
            Of the first element.
        dtype : numpy.dtype
            Of booleans, integers or floats.
        shape : tuple of int
        """
        rank = len(shape)
        extents = (ctypes.c_int64 * rank)(*shape)
        strides = (ctypes.c_int64 * rank)(*(math.prod(shape[axis:]) for axis in range(1, rank + 1)))
        kind = _CODES[dtype.kind], 8 * dtype.itemsize, 1
        content = DLTensor(address, _CPU, 0, rank, *kind, extents, strides, 0)
        made = ctypes.c_void_p()
        # A view of nothing: TVM copies the description and owns the copy.
        self.check(self._create_view(None, content, made))
        assert made.value is not None
        return Tensor(self, made.value)

    def callback(self, function: Callable[..., None]) -> Function:
        """Make a Python function callable by TVM.

        Its arguments are what TVM passes: numbers and strings as such, tensors as `DLTensor` that
        are valid during the call, anything else as None. TVM must let go of it before the returned
        object is collected.
        """

        def call(_: Any, values: Any, count: int, __: Any) -> int:
            try:
                function(*(_borrowed(values[i]) for i in range(count)))
            except BaseException as error:
                self._set_error(b"RuntimeError", repr(error).encode())
                return -1
            return 0

        made = ctypes.c_void_p()
        safe_call = _SafeCall(call)
        self.check(self._create_function(None, safe_call, None, made))
        assert made.value is not None
        return Function(self, made.value, safe_call)

    def take(self, result: _Value) -> Any:
        """Return an owned value as an integer, a boolean, None, or an `Object`."""
        if result.kind == _NONE:
            return None
        if result.kind in (_INT, _BOOL):
            return result.integer
        assert result.kind >= _FIRST_OBJECT, f"unexpected value of kind {result.kind}"
        kind = Function if result.kind == _FUNCTION else Object
        return kind(self, result.integer)

    def check(self, status: int) -> None:
        """Check what a call returned.

        Raises
        ------
        FfiError
            If it failed.
        """
        if status:
            raise self._error()

    def _error(self) -> FfiError:
        """Return the error that the failed call left, and clear it."""
        raised = ctypes.c_void_p()
        self._move_error(raised)
        if not raised.value:
            return FfiError("TVM's runtime gave no reason")
        message = _text_at(raised.value + _HEADER + ctypes.sizeof(_Bytes))  # behind its kind
        self.release(raised.value)
        return FfiError(" ".join(message.split()))


@functools.cache
def runtime() -> Ffi:
    """Load TVM's runtime into this process, once.

    Raises
    ------
    TargetError
        If it is not installed.
    """
    return Ffi(find_libraries())


def _prototype(function: Any, *arguments: Any) -> Any:
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function


def _value(argument: int | bytes | Object) -> _Value:
    """Return an argument in TVM's form, valid as long as the argument lives."""
    if isinstance(argument, int):
        return _Value(_INT, 0, argument)
    if isinstance(argument, Object):
        kind = ctypes.c_int32.from_address(argument.handle + 8).value
        return _Value(kind, 0, argument.handle)
    address = ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value
    return _Value(_RAW_STRING, 0, address)


def _text_at(address: int) -> str:
    """Read the string that a ``TVMFFIByteArray`` describes."""
    data, size = (ctypes.c_size_t * 2).from_address(address)
    return ctypes.string_at(data, size).decode("utf-8", "replace")


def _tensors(result: _Value) -> list[DLTensor]:
    """Return the tensors of a value that is one, or an array of them."""
    if result.kind == _TENSOR:
        return [DLTensor.from_address(result.integer + _HEADER)]
    assert result.kind == _ARRAY, f"unexpected value of kind {result.kind}"
    cell = _Sequence.from_address(result.integer + _HEADER)
    values = (_Value * cell.size).from_address(cell.data) if cell.size else ()
    return [DLTensor.from_address(value.integer + _HEADER) for value in values]


def _borrowed(value: _Value) -> Any:
    """Return a value that TVM passes to a callback."""
    if value.kind in (_INT, _BOOL):
        return value.integer
    if value.kind == _FLOAT:
        return ctypes.c_double.from_buffer(value, _Value.integer.offset).value
    if value.kind == _SMALL_STRING:
        return value.integer.to_bytes(8, "little", signed=True)[: value.length].decode()
    if value.kind == _RAW_STRING:
        return ctypes.string_at(value.integer).decode()
    if value.kind == _STRING:
        return _text_at(value.integer + _HEADER)
    if value.kind == _TENSOR:
        return DLTensor.from_address(value.integer + _HEADER)
    return None
