"""What a schedule needs to know of one stage (block) of a function: loops, accesses, cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.tirx.stmt_functor import post_order_visit

# Calls that cost no more than an addition.
CHEAP_CALLS = frozenset({"tirx.if_then_else", "tirx.likely", "tirx.fabs", "tirx.ret"})


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write: the buffer's extents and the index expressions."""

    shape: tuple[int, ...]
    indices: tuple[Any, ...]

    def uses(self, var: Any) -> bool:
        """Whether any index depends on ``var``."""
        return any(_uses(index, var) for index in self.indices)

    def walks(self, variables: tuple[Any, ...], extents: tuple[int, ...]) -> bool:
        """Whether the last dimensions are exactly ``variables``, in order, each complete."""
        count = len(variables)
        tail = self.indices[len(self.indices) - count :]
        if len(tail) < count or not all(
            index.same_as(var) for index, var in zip(tail, variables, strict=True)
        ):
            return False
        if self.shape[len(self.shape) - count + 1 :] != extents[1:]:
            return False
        lead = self.indices[: len(self.indices) - count]
        return not any(_uses(index, var) for index in lead for var in variables)


@dataclass(frozen=True, slots=True)
class Stage:
    """One block whose own loops correspond one to one to its iteration variables.

    Attributes
    ----------
    outer_loops : int
        Loops around the stage that it shares with others; not counted in the following.
    variables, extents : tuple
        Iteration variables and loop extents, outermost first.
    reduced : tuple of bool
        Which of them are reduced over.
    writes, reads : tuple of Access
        Accesses, but for a reduction's own accumulator.
    conditions : tuple
        Conditions of ``if_then_else``, which keep a loop over what they depend on scalar.
    """

    name: str
    dtype: str
    outer_loops: int
    variables: tuple[Any, ...]
    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]
    conditions: tuple[Any, ...]
    outer_volume: int
    is_expensive: bool
    uses_index_values: bool

    @property
    def volume(self) -> int:
        """Iterations, those of the loops around included."""
        return self.outer_volume * math.prod(self.extents)

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces over anything."""
        return any(self.reduced)

    @property
    def is_conditional(self) -> bool:
        """Whether it chooses between values per element."""
        return bool(self.conditions)

    @property
    def vector_extent(self) -> int:
        """Iterations of the loop that a schedule would vectorise."""
        own = [e for e, r in zip(self.extents, self.reduced, strict=True) if not r and e > 1]
        if self.is_reduction:
            return self.extents[-1] if not self.vector_axis() else max(own[-1:], default=1)
        return max(own[-1:], default=1)

    @property
    def can_vectorize_last(self) -> bool:
        """Whether the innermost loop may be a strided vector: every index is linear in it."""
        last = self.variables[-1]
        if self.uses_index_values or any(_uses(c, last) for c in self.conditions):
            return False
        return all(
            index.same_as(last) or not _uses(index, last)
            for access in (*self.reads, *self.writes)
            for index in access.indices
        )

    def contiguous_from(self, start: int) -> bool:
        """Whether the loops from ``start`` on can be one loop over consecutive elements."""
        variables, extents = self.variables[start:], self.extents[start:]
        if any(_uses(c, v) for c in self.conditions for v in variables):
            return False
        if self.uses_index_values:
            return False
        return all(
            access.walks(variables, extents) or not any(access.uses(v) for v in variables)
            for access in (*self.reads, *self.writes)
        )

    def vector_axis(self) -> int | None:
        """Position of a spatial loop that every access walks with stride one, if there is one."""
        spatial = [
            i
            for i, (extent, reduced) in enumerate(zip(self.extents, self.reduced, strict=True))
            if not reduced and extent > 1
        ]
        if not spatial:
            return None
        axis = spatial[-1]
        var = self.variables[axis]
        if self.uses_index_values or any(_uses(c, var) for c in self.conditions):
            return None
        accesses = (*self.reads, *self.writes)
        fits = all(a.walks((var,), (1,)) or not a.uses(var) for a in accesses)
        read = any(a.uses(var) for a in self.reads)
        return axis if fits and read else None


def read_stage(sch: Schedule, block: Any, outer_loops: int = 0) -> Stage | None:
    """Describe a block; None if it is not a plain computation over static loops."""
    node = sch.get(block)
    loops = list(sch.get_loops(block))[outer_loops:]
    around = list(sch.get_loops(block))[:outer_loops]
    if not isinstance(node.body, tirx.BufferStore) and node.init is None:
        return None
    if any(not isinstance(sch.get(loop).extent, tirx.IntImm) for loop in (*around, *loops)):
        return None
    variables = _loop_variables(sch, block, loops)
    if variables is None:
        return None
    kinds = {v.var: v.iter_type for v in node.iter_vars}
    if any(kind not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce) for kind in kinds.values()):
        return None
    scan = _Scan()
    post_order_visit(node.body, scan.visit)
    if scan.opaque or len({w.name for w in scan.stored}) != len(scan.stored):
        return None
    extents = tuple(int(sch.get(loop).extent) for loop in loops)
    return Stage(
        name=node.name_hint,
        dtype=str(scan.stored[0].dtype),
        outer_loops=outer_loops,
        variables=tuple(variables),
        extents=extents,
        reduced=tuple(
            v is not None and kinds[v] == tirx.IterVar.CommReduce for v in variables
        ),
        writes=tuple(scan.writes),
        reads=tuple(
            access for buffer, access in scan.reads if not any(buffer.same_as(s) for s in scan.stored)
        ),
        conditions=tuple(scan.conditions),
        outer_volume=math.prod(int(sch.get(loop).extent) for loop in around),
        is_expensive=scan.expensive,
        uses_index_values=scan.uses_index_values,
    )
