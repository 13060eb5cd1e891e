"""Run kernels with each of their tensors between inaccessible pages (``NEOCPU_GUARD=1``).

Every call of a kernel is made twice on copies of its tensors: first they end at inaccessible pages,
then they begin there. A kernel that steps out dies of SIGSEGV, and `faulthandler` prints its name.
A tensor that is no multiple of 64 bytes long leaves a few bytes up to the page, whose pattern
differs between the two calls: a kernel that reads them computes two results, and one that writes
them is found too. Memory that kernels allocate is guarded alike.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.binding import Handle, library
from neocpu.runtime.guarding.guarded_memory import ALIGNMENT, EDGES, Edge, GuardedMemory, Workspaces
from neocpu.runtime.guarding.kernel_calls import Call, Interception, Kernel, Tensor


class GuardError(AssertionError):
    """A kernel read or wrote outside its arguments, where no page could stop it."""


class Guard:
    """Calls the kernels of a model in place of the library."""

    def __init__(self) -> None:
        self._workspaces = Workspaces()
        self._finding: BaseException | None = None
        self._interception = Interception(
            Call(self._call), None, self._workspaces.allocate, self._workspaces.release
        )
        if not faulthandler.is_enabled():
            faulthandler.enable()

    def attach(self, model: Handle) -> None:
        """Call a model's kernels from now on. The guard must live as long as the model."""
        library().neocpu_intercept(model.address, ctypes.byref(self._interception))

    def raise_finding(self) -> None:
        """Raise the error that was found since the last call of this, if any."""
        error, self._finding = self._finding, None
        if error is not None:
            raise error from None

    def _call(self, _: Any, kernel: Any, arguments: Any) -> int:
        """Make a call for the library. An exception must not reach it, and is kept."""
        try:
            self.check(kernel.contents, arguments)
        except BaseException as error:
            self._finding = error
            return -1
        return 0

    def check(self, kernel: Kernel, arguments: Any) -> None:
        """Call a kernel twice on guarded copies of its arguments, and write its results."""
        name = kernel.name.decode()

        def call() -> None:
            if kernel.call(arguments) != 0:
                raise MemoryError(f"kernel {name} failed")

        tensors = kernel.tensors(arguments)
        spans = tuple(_spans(tensors, [tensor.bytes for tensor in tensors], kernel.results))
        first, second = (self._run(name, call, spans, edge) for edge in EDGES)
        for span, one, other in zip(spans, first, second, strict=True):
            if span.is_constant:
                continue
            if not np.array_equal(one.content, other.content):
                raise GuardError(
                    f"kernel {name} reads beside its arguments or what it never wrote: "
                    f"{span} depends on it"
                )
            original = span.bytes()
            if not np.array_equal(original, one.content):
                original[...] = one.content

    def _run(
        self, name: str, call: Callable[[], None], spans: Sequence[_Span], edge: Edge
    ) -> list[GuardedMemory]:
        copies = [span.copy(edge) for span in spans]
        self._workspaces.edge = edge
        try:
            for span, copy in zip(spans, copies, strict=True):
                for _, tensor in span.tensors:
                    tensor.data += copy.address - span.start
            under_the_name(f"kernel {name}, at the {edge} of its tensors", call)()
        finally:
            for span, copy in zip(spans, copies, strict=True):
                for _, tensor in span.tensors:
                    tensor.data -= copy.address - span.start
        strays = [
            f"{stray} of {span}"
            for span, copy in zip(spans, copies, strict=True)
            if (stray := copy.stray_write())
        ]
        strays += [f"{stray} of a workspace" for stray in self._workspaces.take_strays()]
        if strays:
            raise GuardError(f"kernel {name} wrote {', '.join(strays)}")
        return copies


@dataclass(frozen=True, slots=True)
class _Span:
    """The bytes of one tensor of a call, or of several that overlap."""

    start: int
    stop: int
    is_constant: bool
    tensors: tuple[tuple[int, Tensor], ...]

    def __str__(self) -> str:
        return " with ".join(
            f"argument {number} ({'x'.join(map(str, tensor.shape)) or 'scalar'})"
            for number, tensor in self.tensors
        )

    def bytes(self) -> AnyArray:
        size = self.stop - self.start
        memory: Any = (ctypes.c_char * size).from_address(self.start)
        return np.ndarray(size, np.uint8, memory)

    def copy(self, edge: Edge) -> GuardedMemory:
        """Return a guarded copy of the bytes, aligned as they are."""
        memory = GuardedMemory(self.stop - self.start, edge, self.start % ALIGNMENT)
        memory.content[...] = self.bytes()
        if self.is_constant:
            memory.make_read_only()
        return memory


def _spans(tensors: Sequence[Tensor], sizes: Sequence[int], results: int) -> Iterator[_Span]:
    """Yield a call's spans: a tensor, or several that overlap; the last ``results`` are written."""
    # A tensor may be passed twice; its address must change once.
    distinct = {ctypes.addressof(tensor): number for number, tensor in enumerate(tensors)}
    pending: list[tuple[int, Tensor]] = []
    start = stop = 0

    def span() -> _Span:
        is_constant = all(number + results < len(tensors) for number, _ in pending)
        return _Span(start, stop, is_constant, tuple(pending))

    for number in sorted(distinct.values(), key=lambda one: tensors[one].data or 0):
        tensor, size = tensors[number], sizes[number]
        if not size:
            continue
        if pending and tensor.data >= stop:
            yield span()
            pending = []
        if not pending:
            start = stop = tensor.data
        pending.append((number, tensor))
        stop = max(stop, tensor.data + size)
    if pending:
        yield span()


def under_the_name(name: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls another one, and has the given name in tracebacks."""

    def caller() -> Any:
        return function()

    code = caller.__code__.replace(co_name=name)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    return types.FunctionType(code, globals(), name, None, caller.__closure__)
