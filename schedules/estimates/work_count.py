"""Counts of what the loops of a scheduled function compute and touch; see `kernel_work`.

The function is read as LLVM compiles it: loop-invariant code moves out of loops, sums that stay at
one address stay in registers, and innermost loops over neighbours become vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize

from neocpu.schedules.estimates.expressions import (
    bounds,
    bytes_of,
    indexed_extents,
    parts,
    reads,
    vectors_within,
)
from neocpu.schedules.estimates.kernel_work import CHAIN, VECTOR, KernelWork, LoopWork
from neocpu.schedules.estimates.touched_bytes import Access, Loop, compacted, fetched_again, touched
from neocpu.schedules.estimates.value_count import Nest, ValueCount, stride_along
from neocpu.schedules.isa.instruction import LATENCY
from neocpu.schedules.vocabulary.target import CpuTarget

# The assumed probability of each branch that data decide.
HALF: Final = 0.5
# The assumed iterations of a loop that data end, if nothing bounds them.
UNKNOWN_LENGTH: Final = 4.0
# The share of a cache that a loop's data may fill beside other data.
CACHE_SHARE: Final = 0.5
# The additions from which on the core begins no next sum meanwhile, and a shorter one's wait.
LONG_SUM: Final = 32
OVERLAPPED: Final = 0.35
# The factor for a sum whose last vector is partial: LLVM splits it into smaller ones.
RAGGED: Final = 3.0
_NOTHING: Final = -2


def count_work(function: tirx.PrimFunc, target: CpuTarget) -> KernelWork:
    """Return the work of a scheduled function's loop nests; loops that data end do so half way."""
    count = _WorkCount(target, list(function.params))
    count.statement(function.body)
    return count.work()


class _WorkCount(ValueCount):
    def __init__(self, target: CpuTarget, parameters: list[Any]) -> None:
        super().__init__(target, parameters)
        self._nests = [self.nest]
        # The innermost loop on which the address of the last running sum depends.
        self._sum = _NOTHING
        self._explicit = False

    def work(self) -> KernelWork:
        used: dict[Any, list[tuple[int, Access]]] = {}
        for number, nest in enumerate(self._nests):
            for access in _accesses(nest):
                used.setdefault(access.buffer, []).append((number, access))
        own: dict[Access, Access] = {}
        for uses in used.values():
            accesses = [access for _, access in uses]
            if not accesses[0].is_parameter and len({number for number, _ in uses}) == 1:
                own |= zip(accesses, compacted(accesses), strict=True)
        return tuple(self._nest_work(nest, own) for nest in self._nests if any(nest.cycles))

    def _nest_work(self, nest: Nest, own: dict[Access, Access]) -> LoopWork:
        sizes = (self.target.l1d, self.target.l2)
        caches = [int(size * CACHE_SHARE) for size in sizes]
        statements = [[own.get(access, access) for access in each] for each in nest.statements]
        l1, l2 = (math.fsum(fetched_again(each, cache) for each in statements) for cache in caches)
        size = touched(access for access in _accesses(nest) if access not in own)
        every = touched(access for each in statements for access in each)
        return LoopWork(
            tasks=nest.tasks,
            forks=nest.forks,
            cycles=tuple(nest.cycles),
            size=size,
            from_l2=every + l1,
            again=l2,
        )

    def statement(self, node: Any) -> None:
        """Count a statement; statements that compute nothing take no time."""
        read = self._READERS.get(type(node))
        if read is not None:
            read(self, node)

    def _sequence(self, node: Any) -> None:
        for each in node.seq:
            if not self.loops:
                self._begin(Nest())  # another loop nest follows
            self.statement(each)

    def _begin(self, nest: Nest) -> None:
        self.nest = nest
        self._nests.append(nest)

    def _realized(self, node: Any) -> None:
        for variable, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self._name(variable.var, value)
        self.statement(node.block.body)

    def _name(self, variable: Any, value: Any) -> None:
        self.indices.bind(variable, value)
        self.depths[variable] = self.depth(value)

    def _block(self, node: Any) -> None:
        self.statement(node.body)

    def _declared(self, node: Any) -> None:
        data = getattr(node, "data", None)
        if data is not None:
            source = next((part for part in (data, *parts(data)) if isinstance(part, Var)), data)
            self.owners[node.buffer] = self.owners.get(source, source)

    def _bound(self, node: Any) -> None:
        self.indices.bind(node.var, node.value)
        self.depths[node.var] = self.value(node.value)
        self._end()

    def _evaluated(self, node: Any) -> None:
        self.value(node.value)
        self._end()

    def _stored(self, node: Any) -> None:
        before = self.nest.cycles[VECTOR]
        self.value(node.value)
        self.access(node.buffer, node.indices, stores=True)
        if reads(node.value, node.buffer):
            place = max(map(self._row, node.indices), default=-1)
            if self._row(node.value) > place:
                self._sum = max(self._sum, place)
                if self._is_ragged(node.buffer):
                    self.nest.cycles[VECTOR] += (RAGGED - 1) * (self.nest.cycles[VECTOR] - before)
        self._end()

    def _row(self, expr: Any) -> int:
        """Return the innermost loop besides the vectorised one that an expression depends on."""
        lanes = None if self.vector is None else self.loops[self.vector].var
        if isinstance(expr, Var):
            if expr is lanes or expr.same_as(lanes):
                return -1
            bound = self.indices.bound(expr)
            return self.depths.get(expr, -1) if bound is None else self._row(bound)
        inner = expr.indices if isinstance(expr, TensorLoad) else parts(expr)
        return max(map(self._row, inner), default=-1)

    def _is_ragged(self, buffer: Any) -> bool:
        if self.vector is None or not self._explicit:
            return False
        size = self.loops[self.vector].extent * bytes_of(str(buffer.dtype))
        return size > self.target.vector_bytes and size % self.target.vector_bytes != 0

    def _end(self) -> None:
        self.computed = {}
        if self.accesses:
            self.nest.statements.append(self.accesses)
            self.accesses = []

    def _chosen(self, node: Any) -> None:
        self.value(node.condition)
        self._end()
        known = self.indices.value(node.condition, {}) is not None and node.else_case is None
        for side in (node.then_case, node.else_case):
            if side is not None:
                self._within(Loop(None, 1.0 if known else HALF), side)

    def _while(self, node: Any) -> None:
        length = min(bounds(node.condition), default=0.0) or self._search(node.body)
        self._within(Loop(None, length), tirx.Evaluate(node.condition))
        self._within(Loop(None, length), node.body)

    def _search(self, body: Any) -> float:
        """Return the steps of a search, which may end at the first element."""
        return max(UNKNOWN_LENGTH, math.sqrt(max(vectors_within(body), default=1.0)))

    def _for(self, node: Any) -> None:
        loop = Loop(node.loop_var, self._extent(node), int(node.kind) == tirx.ForKind.PARALLEL)
        if loop.parallel and not any(one.parallel for one in self.loops):
            outer = self.nest
            self._begin(Nest(tasks=loop.extent, forks=self.iterations(len(self.loops))))
            self._within(loop, node.body)
            self.nest = outer
            return
        self._explicit = int(node.kind) == tirx.ForKind.VECTORIZED
        vector = self._explicit or self._becomes_vectors(node, loop)
        before, around, self._sum = math.fsum(self.nest.cycles), self._sum, _NOTHING
        self._within(loop, node.body, vector=vector)
        if not vector and self._sum != _NOTHING and self._sum < len(self.loops):
            self._wait(loop, before)
            self._sum = _NOTHING
        self._sum = max(around, self._sum)

    def _wait(self, loop: Loop, before: float) -> None:
        """Charge for iterations that are shorter than the latency of a sum."""
        iterations = self.iterations(len(self.loops)) * loop.extent
        spent = (math.fsum(self.nest.cycles) - before) / iterations
        exposed = 1.0 if loop.extent >= LONG_SUM else OVERLAPPED
        self.nest.cycles[CHAIN] += exposed * max(0.0, LATENCY - spent) * iterations

    def _within(self, loop: Loop, body: Any, *, vector: bool = False) -> None:
        place, outer = len(self.loops), self.vector
        self.loops.append(loop)
        if loop.var is not None:
            self.depths[loop.var] = place
            self.vector = place if vector else outer
        self.statement(body)
        self.vector = outer
        self.loops.pop()

    def _extent(self, node: Any) -> float:
        middle = {one.var: int(one.extent / 2) for one in self.loops if one.var is not None}
        found = self.indices.value(node.extent, middle)
        if found is not None:
            return max(1.0, float(found))
        limits = indexed_extents(node.body, node.loop_var)
        return max(1.0, HALF * min(limits, default=2 * UNKNOWN_LENGTH))

    def _becomes_vectors(self, node: Any, loop: Loop) -> bool:
        """Return whether LLVM vectorises a loop that stores neighbours, whatever it reads."""
        found = _Innermost()
        if not found.holds(node.body) or loop.extent < 2:
            return False
        self.depths[node.loop_var] = len(self.loops)
        for variable, value in found.names:
            self._name(variable, value)
        stored = {buffer for buffer, _ in found.stores}
        if any(self._has_digits(index, loop) for _, indices in found.loads for index in indices):
            return False
        offset = self.indices.offset
        own = {
            stride_along(loop, offset(buffer.shape, indices))
            for buffer, indices in found.loads
            if buffer in stored
        }
        strides = {
            stride_along(loop, offset(buffer.shape, indices)) for buffer, indices in found.stores
        }
        return strides == {1} and own <= {0, 1}

    def _has_digits(self, index: Any, loop: Loop) -> bool:
        if isinstance(index, tirx.FloorDiv | tirx.FloorMod) and self._depends(index, loop.var):
            return True
        if isinstance(index, Var) and (bound := self.indices.bound(index)) is not None:
            return self._has_digits(bound, loop)
        return any(self._has_digits(part, loop) for part in parts(index))

    def _depends(self, index: Any, var: Any) -> bool:
        if isinstance(index, Var):
            bound = self.indices.bound(index)
            return index.same_as(var) if bound is None else self._depends(bound, var)
        return any(self._depends(part, var) for part in parts(index))

    _READERS: ClassVar[dict[type, Callable[[_WorkCount, Any], None]]] = {
        tirx.SeqStmt: _sequence,
        SBlockRealize: _realized,
        SBlock: _block,
        tirx.DeclBuffer: _declared,
        tirx.Bind: _bound,
        tirx.Evaluate: _evaluated,
        tirx.AttrStmt: lambda self, node: self.statement(getattr(node, "body", None)),
        tirx.IfThenElse: _chosen,
        tirx.While: _while,
        tirx.For: _for,
        tirx.BufferStore: _stored,
    }


def _accesses(nest: Nest) -> list[Access]:
    return [access for each in nest.statements for access in each]


class _Innermost:
    """The accesses of a loop without inner loops or branches."""

    def __init__(self) -> None:
        self.stores: list[tuple[Any, Any]] = []
        self.loads: list[tuple[Any, Any]] = []
        self.names: list[tuple[Any, Any]] = []

    def holds(self, node: Any) -> bool:
        if isinstance(node, tirx.SeqStmt):
            return all(map(self.holds, node.seq))
        if isinstance(node, SBlockRealize):
            variables = (each.var for each in node.block.iter_vars)
            self.names += zip(variables, node.iter_values, strict=True)
            return self.holds(node.block.body)
        if isinstance(node, tirx.Bind):
            self.names.append((node.var, node.value))
            return self._reads(node.value)
        if isinstance(node, tirx.BufferStore):
            self.stores.append((node.buffer, node.indices))
            return self._reads(node.value)
        return False

    def _reads(self, value: Any) -> bool:
        if isinstance(value, TensorLoad):
            self.loads.append((value.source, value.indices))
            return True
        return all(map(self._reads, parts(value)))
