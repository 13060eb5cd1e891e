"""Calls of models whose calls choose sizes, through the functions of ``neocpu.h``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neocpu.core import LIBRARY
from neocpu.runtime.aligned_memory import address_of, aligned_empty
from neocpu.runtime.binding import Input, Options, Output

_library = ctypes.CDLL(os.fspath(LIBRARY))
_library.neocpu_error.restype = ctypes.c_char_p


class RefusedError(Exception):
    """The status and the message of a call that failed."""

    def __init__(self, status: int) -> None:
        super().__init__(_library.neocpu_error().decode())
        self.status = status


def call(name: str, *arguments: Any) -> None:
    """Call a function that returns a status; integers are passed as pointers or ``size_t``."""
    every = [ctypes.c_size_t(each) if isinstance(each, int) else each for each in arguments]
    status = getattr(_library, name)(*every)
    if status:
        raise RefusedError(status)


class SizedModel:
    """A loaded model, or a stream of one, freed at the end of a ``with`` statement."""

    def __init__(self, of: Path | SizedModel, threads: int = 1) -> None:
        options, made = Options(threads=threads), ctypes.c_void_p()
        if isinstance(of, SizedModel):
            call("neocpu_load_stream", of.address, ctypes.byref(options), ctypes.byref(made))
        else:
            path = os.fspath(of).encode()
            call("neocpu_load", path, ctypes.byref(options), ctypes.byref(made))
        assert made.value is not None
        self.address: int = made.value

    def __enter__(self) -> SizedModel:
        return self

    def __exit__(self, *_: object) -> None:
        _library.neocpu_free(ctypes.c_void_p(self.address))

    def extents(self, sizes: Sequence[int], count: int) -> list[int]:
        """Return the ``count`` extents of all inputs and outputs."""
        found = (ctypes.c_int64 * count)()
        call("neocpu_extents", self.address, _sizes(sizes), found)
        return list(found)

    def run(
        self, sizes: Sequence[int], inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> list[Any]:
        """Return float32 outputs of these shapes."""
        outputs = [aligned_empty(shape) for shape in shapes]
        taken, given = arrays(inputs, outputs)
        call(
            "neocpu_run_sizes",
            *(self.address, _sizes(sizes), taken, len(taken), given, len(given)),
        )
        return outputs

    def submit(
        self, sizes: Sequence[int], inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> Submitted:
        return Submitted(self, sizes, inputs, shapes)


class Submitted:
    """A call that is made while its caller goes on."""

    def __init__(
        self,
        model: SizedModel,
        sizes: Sequence[int],
        inputs: Sequence[Any],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self._outputs = [aligned_empty(shape) for shape in shapes]
        self._kept = inputs, (pair := arrays(inputs, self._outputs))
        self._job = ctypes.c_void_p()
        taken, given = pair
        chosen = _sizes(sizes)
        call(
            "neocpu_submit_sizes",
            *(model.address, chosen, taken, len(taken), given, len(given)),
            ctypes.byref(self._job),
        )
        ctypes.memset(chosen, 0, ctypes.sizeof(chosen))  # the library has its own copy

    def outputs(self) -> list[Any]:
        """Wait for the call, and return its outputs."""
        call("neocpu_wait", self._job)
        return self._outputs


def arrays(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, Any]:
    """Return the library's descriptions of arrays, which have to stay as long."""
    taken = [Input(address_of(each), each.nbytes) for each in inputs]
    given = [Output(address_of(each), each.nbytes, 0) for each in outputs]
    return (Input * len(taken))(*taken), (Output * len(given))(*given)


def _sizes(sizes: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(sizes))(*sizes)
