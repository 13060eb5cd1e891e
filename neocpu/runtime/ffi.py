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
from typing import Any, TypeVar

import numpy as np

from neocpu.foundation.dtypes import DTYPES
from neocpu.runtime.ffi_values import (
    BOOL,
    CPU,
    FIRST_OBJECT,
    FUNCTION,
    HEADER,
    INT,
    NONE,
    RAW_STRING,
    Bytes,
    DLTensor,
    Value,
    borrowed,
    tensors_of,
    text_at,
)
from neocpu.runtime.native import NativeLibraries, find_libraries

S = TypeVar("S")
T = TypeVar("T")


class FfiError(RuntimeError):
    """A call into TVM's runtime failed; the message is the library's, in one line."""


_SafeCall = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(Value),
    ctypes.c_int32,
    ctypes.POINTER(Value),
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
        self._process = os.getpid()  # last: an interrupted beginning leaves nothing to give back

    def __del__(self) -> None:
        if os.getpid() == getattr(self, "_process", None):
            self._library.release(self.handle)


class Tensor(Object):
    """A tensor over memory of ours, which must outlive the calls that read or write it."""

    __slots__ = ("content",)

    def __init__(self, library: Ffi, handle: int) -> None:
        super().__init__(library, handle)
        self.content = DLTensor.from_address(handle + HEADER)


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
        values = (Value * len(encoded))(*map(_value, encoded))
        result, handle = Value(), ctypes.c_void_p(self.handle)
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
        self._result = Value()
        self._native = (
            ctypes.c_void_p(function.handle),
            (Value * len(arguments))(*map(_value, arguments)),
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
        result.kind = NONE
        self._library.check(self._library.call(*self._native))
        try:
            return read(tensors_of(result), state)
        finally:
            if result.kind >= FIRST_OBJECT:
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
            library.TVMFFIFunctionGetGlobal, ctypes.POINTER(Bytes), handle
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
        self.check(self._get_global(Bytes(key, len(key)), found))
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
        element = DTYPES[dtype.name]
        content = DLTensor(
            address, CPU, 0, rank, element.code, element.bits, 1, extents, strides, 0
        )
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
        return self.raw_callback(lambda values: function(*map(borrowed, values)))

    def raw_callback(self, function: Callable[[ctypes.Array[Value]], int | None]) -> Function:
        """Make a function of TVM's values callable by TVM, which gets the integer it returns.

        The values are valid during the call. TVM must let go of it before the returned object is
        collected.
        """

        def call(_: Any, values: Any, count: int, result: Any) -> int:
            try:
                first = ctypes.cast(values, ctypes.c_void_p).value or 0
                answer = function((Value * count).from_address(first))
            except BaseException as error:
                self._set_error(b"RuntimeError", repr(error).encode())
                return -1
            if answer is not None:
                result[0] = Value(INT, 0, answer)
            return 0

        made = ctypes.c_void_p()
        safe_call = _SafeCall(call)
        self.check(self._create_function(None, safe_call, None, made))
        assert made.value is not None
        return Function(self, made.value, safe_call)

    def forward(self, function: Value, arguments: ctypes.Array[Value]) -> None:
        """Call the function that a value holds with TVM's values; what it returns is a number."""
        result, handle = Value(), ctypes.c_void_p(function.integer)
        self.check(self.call(handle, arguments, len(arguments), ctypes.byref(result)))

    def take(self, result: Value) -> Any:
        """Return an owned value as an integer, a boolean, None, or an `Object`."""
        if result.kind == NONE:
            return None
        if result.kind in (INT, BOOL):
            return result.integer
        assert result.kind >= FIRST_OBJECT, f"unexpected value of kind {result.kind}"
        kind = Function if result.kind == FUNCTION else Object
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
        message = text_at(raised.value + HEADER + ctypes.sizeof(Bytes))  # after its kind
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


def _value(argument: int | bytes | Object) -> Value:
    """Return an argument in TVM's form, valid as long as the argument lives."""
    if isinstance(argument, int):
        return Value(INT, 0, argument)
    if isinstance(argument, Object):
        kind = ctypes.c_int32.from_address(argument.handle + 8).value
        return Value(kind, 0, argument.handle)
    address = ctypes.cast(ctypes.c_char_p(argument), ctypes.c_void_p).value
    return Value(RAW_STRING, 0, address)
