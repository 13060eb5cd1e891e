"""The shortcomings of a scheduled kernel, their cost, and the reasons that excuse them: a schedule
that does not apply would pass unnoticed, with a kernel that is correct and ten times slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.stmt import SBlock

from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.foundation.units import size as size_text
from neocpu.schedules.estimates.expressions import bytes_of, is_library_call
from neocpu.schedules.estimates.kernel_work import (
    CLASSES,
    DEFAULT,
    GATHER,
    LIBRARY,
    SCALAR,
    KernelWork,
    share,
    work_seconds,
)
from neocpu.schedules.estimates.memory_traffic import stream_seconds
from neocpu.schedules.vocabulary.target import CpuTarget

UNSCHEDULED: Final = "neocpu.unscheduled"
"""The attribute of a function that says why the generic schedule does not apply to it."""

AS_IT_STANDS: Final = "compiled without optimisation"
NO_SCHEDULE: Final = "no schedule"
ONE_THREAD: Final = "one thread"
WORKSPACE: Final = "workspace"
BY_CYCLES: Final = {SCALAR: "scalar", GATHER: "gather", LIBRARY: "library calls"}
"""The name of a shortcoming for each class of cycles."""

LEFT_OVER: Final = 0.05
"""The share of a kernel's cycles that may be spent on single elements."""
WORTH: Final = 10_000.0
"""The fewest cycles of a kernel that matters: some microseconds, about one fork."""
WORTH_THREADS: Final = 50_000.0
"""The fewest cycles of a kernel that needs a parallel loop: below, a fork takes a large share."""
A_MAP: Final = 0.5
"""The share of the largest output tensor at which a workspace counts as a feature map."""

BY_DATA: Final = "data decide what is read"
ENDED_BY_DATA: Final = "data end its loops"
STRIDED: Final = "neighbours lie apart"

_IN_TURN: Final = "each step depends on the one before, as of boxes and ranks"

REASONS: Final[Mapping[tuple[str, str], str]] = {
    (BY_CYCLES[GATHER], BY_DATA): "no vector load can know where the next element is",
    (BY_CYCLES[SCALAR], ENDED_BY_DATA): _IN_TURN,
    (BY_CYCLES[SCALAR], BY_DATA): "what is read element by element is computed so",
    (ONE_THREAD, ENDED_BY_DATA): _IN_TURN,
}
"""The reason for which a kernel has to have a shortcoming, by kind and detail."""
NO_VECTOR_FORM: Final = "these functions have no vector form"
_TILED: Final = frozenset({"conv2d", "dense", "attention", "product", "lstm", "gru", "rnn"})


def is_register_tile(kernel: str) -> bool:
    """Return whether the kernel of this name has its own estimate and computes in register tiles:
    its scalar loads become vector loads, and its workspaces are packed data.
    """
    return kernel.rstrip("0123456789_") in _TILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcoming:
    """A shortcoming of a kernel. `kind` is `AS_IT_STANDS`, `NO_SCHEDULE`, `ONE_THREAD`, `WORKSPACE`
    or a name in `BY_CYCLES`; `detail` is the operation or loop; `size` is a workspace's bytes.
    """

    kind: str
    detail: str
    size: float = 0.0

    @property
    def reason(self) -> str:
        """The reason that excuses it; empty if none is known."""
        if self.kind == BY_CYCLES[LIBRARY]:
            return NO_VECTOR_FORM
        return REASONS.get((self.kind, self.detail), "")

    def seconds(self, work: KernelWork, target: CpuTarget, threads: int) -> float:
        """Return about the seconds that it costs: the whole time of an unscheduled kernel."""
        if self.kind == WORKSPACE:
            return 2 * stream_seconds(math.ceil(self.size), target, threads)
        if self.kind == ONE_THREAD:
            return work_seconds(work, target, threads) * (1 - 1 / threads)
        if self.kind in (AS_IT_STANDS, NO_SCHEDULE):
            return work_seconds(work, target, threads)
        (place,) = (place for place, name in BY_CYCLES.items() if name == self.kind)
        rate = NETWORK_RATES.get(target.mcpu, NETWORK_RATES[DEFAULT]).cycles[CLASSES[place]]
        cycles = math.fsum(nest.cycles[place] * share(nest.tasks, threads) for nest in work)
        return cycles * rate / target.frequency

    def to_json(self) -> list[Any]:
        return [self.kind, self.detail, self.size]

    @classmethod
    def of_json(cls, parts: Sequence[Any]) -> Shortcoming:
        kind, detail, size = parts
        return cls(kind=str(kind), detail=str(detail), size=float(size))


def shortcomings(function: tirx.PrimFunc, work: KernelWork) -> tuple[Shortcoming, ...]:
    """Return the shortcomings of a scheduled function; none if it takes negligible time."""
    total = math.fsum(math.fsum(nest.cycles) for nest in work)
    if total < WORTH:
        return ()
    found: list[Shortcoming] = []
    if why := str((function.attrs or {}).get(UNSCHEDULED, "")):
        found.append(Shortcoming(kind=NO_SCHEDULE, detail=why))
    looked = _Look(function)
    if total >= WORTH_THREADS and not any(nest.forks for nest in work):
        found.append(
            Shortcoming(kind=ONE_THREAD, detail=looked.ended_by_data or "no parallel loop")
        )
    space, written = _workspace(function), looked.largest_written
    if space >= A_MAP * written > 0:
        detail = f"{size_text(round(space))}, and {size_text(round(written))} is the largest result"
        found.append(Shortcoming(kind=WORKSPACE, detail=detail, size=space))
    for place, kind in BY_CYCLES.items():
        if math.fsum(nest.cycles[place] for nest in work) > LEFT_OVER * total:
            found.append(Shortcoming(kind=kind, detail=looked.detail(place)))
    return tuple(found)


class _Look:
    """The structure of a function, read without counting."""

    def __init__(self, function: tirx.PrimFunc) -> None:
        self.calls: set[str] = set()
        self.by_data = ""
        self.ended_by_data = ""
        self.largest_written = 0.0
        parameters = set(function.params)
        visitors = [
            (Call, self._call),
            (TensorLoad, lambda load: self._indices(load.indices)),
            (tirx.BufferStore, self._store(parameters)),
            (tirx.While, lambda _: self._ends()),
            (tirx.For, lambda loop: None if _is_known(loop.extent) else self._ends()),
        ]
        tvm_ffi.structural_walk(function.body, visitors, order="pre")

    def detail(self, place: int) -> str:
        if place == LIBRARY:
            return ", ".join(sorted(self.calls))
        if place == GATHER:
            return self.by_data or STRIDED
        return self.ended_by_data or self.by_data or "elements one by one"

    def _call(self, call: Any) -> None:
        if is_library_call(call):
            self.calls.add(str(call.op.name).rpartition(".")[2])

    def _store(self, parameters: set[Any]) -> Any:
        def store(node: Any) -> None:
            self._indices(node.indices)
            if node.buffer in parameters:
                self.largest_written = max(self.largest_written, _bytes(node.buffer))

        return store

    def _indices(self, indices: Any) -> None:
        for index in indices:
            if not isinstance(index, tirx.Var):
                tvm_ffi.structural_walk(index, (TensorLoad, lambda _: self._decides()))

    def _decides(self) -> None:
        self.by_data = BY_DATA

    def _ends(self) -> None:
        self.ended_by_data = ENDED_BY_DATA


def _is_known(extent: Any) -> bool:
    found = True

    def visit(_: Any) -> None:
        nonlocal found
        found = False

    tvm_ffi.structural_walk(extent, (TensorLoad, visit))
    return found


def _workspace(function: tirx.PrimFunc) -> float:
    found: list[Any] = []

    def collect(body: Any) -> None:
        blocks = (SBlock, lambda block: found.extend(block.alloc_buffers))
        explicit = (tirx.AllocBuffer, lambda alloc: found.append(alloc.buffer))
        tvm_ffi.structural_walk(body, [blocks, explicit])

    collect(function.body)
    if isinstance(function.body, s_tir.SBlockRealize) and function.body.block.alloc_buffers:
        compact = tvm.transform.Sequential(
            [
                s_tir.transform.LowerInitBlock(),
                s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
                s_tir.transform.ConvertBlocksToOpaque(),
                s_tir.transform.CompactBufferAllocation(),
            ]
        )
        found.clear()
        collect(compact(tvm.IRModule({"main": function}))["main"].body)
    return max((_bytes(each) for each in found if each.scope() != "local"), default=0.0)


def _bytes(buffer: Any) -> float:
    extents = (int(e) if isinstance(e, tirx.IntImm) else 1 for e in buffer.shape)
    return float(math.prod(extents) * bytes_of(str(buffer.dtype)))
