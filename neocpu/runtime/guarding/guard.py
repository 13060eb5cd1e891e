"""Run kernels with each of their tensors between inaccessible pages (``NEOCPU_GUARD=1``).

Every call of a kernel is made twice, on copies: first with its tensors ending at inaccessible
pages, then beginning there. A kernel that steps out dies of SIGSEGV, and `faulthandler` prints its
name. The few bytes between the end of a tensor and the page, where it is no multiple of 64 bytes
long, hold a pattern: another one in each call, so that a kernel which reads them computes two
results, and one which writes them is found too. What kernels allocate is guarded likewise.
"""

from __future__ import annotations

import ctypes
import faulthandler
import math
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neocpu.runtime.artifact_file.header import ARGUMENT_ALIGN
from neocpu.runtime.ffi import Ffi, Tensor
from neocpu.runtime.ffi_values import BUILTIN, FUNCTION, HEADER, TENSOR, DLTensor, Value, borrowed
from neocpu.runtime.guarding.guarded_memory import EDGES, AnyArray, Edge, GuardedMemory
from neocpu.runtime.guarding.guarded_workspaces import Workspaces

_SKIP: Final = 1  # VMInstrumentReturnKind::kSkipRun: the kernel has been run


class GuardError(AssertionError):
    """A kernel read or wrote beside its arguments, where no page could stop it."""


class Guard:
    """What a virtual machine calls instead of its kernels.

    Parameters
    ----------
    ffi : Ffi
    constant : sequence of Tensor
        What no kernel may write: inputs and weights.
    workspaces : Workspaces
        Attached to the library whose kernels are run.
    """

    def __init__(self, ffi: Ffi, constant: Sequence[Tensor], workspaces: Workspaces) -> None:
        self._ffi = ffi
        self._constant = tuple(constant)
        self._workspaces = workspaces
        if not faulthandler.is_enabled():
            faulthandler.enable()

    def __call__(self, values: ctypes.Array[Value]) -> int | None:
        """Run the kernel that is about to be called; as an instrument of the virtual machine.

        Raises
        ------
        GuardError
            If it wrote beside its arguments, or its results depend on what lies beside them.
        """
        function, name, before = values[0], borrowed(values[1]), values[2].integer
        if not before or function.kind != FUNCTION or name.startswith(BUILTIN):
            return None
        arguments = (Value * (len(values) - 4)).from_buffer(values, 4 * ctypes.sizeof(Value))

        def call() -> None:
            self._ffi.forward(function, arguments)

        tensors = [
            (number, DLTensor.from_address(value.integer + HEADER))
            for number, value in enumerate(arguments)
            if value.kind == TENSOR
        ]
        constant = frozenset(tensor.content.address for tensor in self._constant)
        spans = tuple(_spans(tensors, constant))
        with self._workspaces.turn:  # modules run on threads of their own
            first, second = (self._run(name, call, spans, edge) for edge in EDGES)
        for span, one, other in zip(spans, first, second, strict=True):
            if span.is_constant:
                continue
            if not np.array_equal(one.content, other.content):
                raise GuardError(
                    f"kernel {name} reads beside its arguments or what it never wrote: "
                    f"{span} depends on it"
                )
            held = span.bytes()
            if not np.array_equal(held, one.content):
                held[...] = one.content
        return _SKIP

    def _run(
        self, name: str, call: Callable[[], None], spans: Sequence[_Span], edge: Edge
    ) -> list[GuardedMemory]:
        """Make the call on guarded copies of its tensors, and return these."""
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
    """The bytes of one tensor, or of several of a call that overlap.

    Attributes
    ----------
    start, stop : int
        Addresses.
    is_constant : bool
        Whether kernels may only read them.
    tensors : tuple of (int, DLTensor)
        With their numbers among the arguments.
    """

    start: int
    stop: int
    is_constant: bool
    tensors: tuple[tuple[int, DLTensor], ...]

    def __str__(self) -> str:
        return " with ".join(
            f"argument {number} ({'x'.join(map(str, tensor.shape)) or 'scalar'})"
            for number, tensor in self.tensors
        )

    def bytes(self) -> AnyArray:
        """Return the bytes where they lie."""
        size = self.stop - self.start
        memory: Any = (ctypes.c_char * size).from_address(self.start)
        return np.ndarray(size, np.uint8, memory)

    def copy(self, edge: Edge) -> GuardedMemory:
        """Return a guarded copy of the bytes, aligned as they are."""
        memory = GuardedMemory(self.stop - self.start, edge, self.start % ARGUMENT_ALIGN)
        memory.content[...] = self.bytes()
        if self.is_constant:
            memory.make_read_only()
        return memory


def _spans(tensors: Sequence[tuple[int, DLTensor]], constant: frozenset[int]) -> Iterator[_Span]:
    """Yield the bytes of a call's tensors: those that overlap must go on overlapping."""
    # The virtual machine may pass one tensor twice, whose address is to change once.
    distinct = {ctypes.addressof(tensor): (number, tensor) for number, tensor in tensors}
    pending: list[tuple[int, DLTensor]] = []
    start = stop = 0
    for number, tensor in sorted(distinct.values(), key=lambda one: one[1].address):
        if not (size := math.prod(tensor.shape) * tensor.bits * tensor.lanes // 8):
            continue
        if pending and tensor.address >= stop:
            yield _Span(start, stop, start in constant, tuple(pending))
            pending = []
        if not pending:
            start = stop = tensor.address
        pending.append((number, tensor))
        stop = max(stop, tensor.address + size)
    if pending:
        yield _Span(start, stop, start in constant, tuple(pending))


def under_the_name(name: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls another one, and bears a name of one's choice in tracebacks.

    That is how the name of a kernel gets into what `faulthandler` prints.
    """

    def caller() -> Any:
        return function()

    code = caller.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, globals(), name, None, caller.__closure__)
