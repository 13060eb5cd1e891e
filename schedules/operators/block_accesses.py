"""The loops and accesses of one stage (block) of a function, for schedules."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm.s_tir import Schedule
from tvm.s_tir.stmt import SBlockRealize
from tvm.sym import Analyzer, detect_linear_equation

# Calls that cost no more than an addition. LLVM's intrinsics in templates and operators are single
# instructions: they round, multiply and add.
IF_THEN_ELSE = "prim.if_then_else"
CHEAP_CALLS = frozenset(
    {IF_THEN_ELSE, "prim.likely", "tirx.fabs", "tirx.floor", "tirx.call_llvm_pure_intrin"}
)

# Values of TVM's TCallEffectKind: the call only computes a value (1), or is no call at all (0).
_PURE = 1
# Calls of a library, which take one element at a time whether or not they are pure.
_LIBRARY_CALL = "tirx.call_pure_extern"

# The weights of calls that `vector_math` expands with more nested names than others: five
# exponentials take ten seconds, like four logarithms or two sines.
_NESTED_CALLS: Final = {
    **dict.fromkeys(("tirx.exp", "tirx.erf"), 2),
    **dict.fromkeys(("tirx.log", "tirx.acos", "tirx.asin", "tirx.atan"), 3),
    **dict.fromkeys(("tirx.sin", "tirx.cos"), 7),
}


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write, without the buffer's dimensions of extent 1."""

    shape: tuple[int, ...]
    indices: tuple[Any, ...]

    def uses(self, var: Any) -> bool:
        """Return whether any index depends on ``var``."""
        return any(uses(index, var) for index in self.indices)

    def walks(self, variables: tuple[Any, ...], extents: tuple[int, ...]) -> bool:
        """Return whether the last dimensions are ``variables``, the inner ones complete."""
        lead = len(self.indices) - len(variables)
        if lead < 0 or self.shape[lead + 1 :] != extents[1:]:
            return False
        tail = self.indices[lead:]
        if not all(index.same_as(var) for index, var in zip(tail, variables, strict=True)):
            return False
        return not any(uses(index, var) for index in self.indices[:lead] for var in variables)

    def stride(self, var: Any) -> int | None:
        """Return the distance of neighbours along ``var`` in elements; None if it varies."""
        if not self.uses(var):
            return 0
        offset: Any = 0
        for extent, index in zip(self.shape, self.indices, strict=True):
            offset = index + offset * extent
        linear = detect_linear_equation(Analyzer().simplify(offset), [var])
        return int(linear[0]) if linear and isinstance(linear[0], tirx.IntImm) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One block: a single store inside loops that each drive one of its variables.

    - `shared_loops`: the loops around the stage that others share; no field below has them.
    - `variables`, `extents`, `reduced`: the block's variable of each loop, outermost first (None if
      the loop has extent 1), the loop's extent, and whether it is a reduction.
    - `accesses`: the store, then the loads, except those of a reduction's own accumulator.
    - `conditions`: those of ``if_then_else``; loops over their variables cannot become vectors.
    - `irregular`: whether an index depends on data, or a value depends on an index.
    - `leaves`: the number of loads and constants in the value.
    - `nesting`: the number of calls, maxima and minima in the value that code generation binds to
      names, some of them several times. For each one nested in another, TVM's analysis takes 2.5
      times as long.
    """

    name: str
    dtype: str
    shared_loops: int
    shared_volume: int
    variables: tuple[Any, ...]
    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    accesses: tuple[Access, ...]
    conditions: tuple[Any, ...]
    expensive: bool
    irregular: bool
    leaves: int
    nesting: int

    @property
    def volume(self) -> int:
        """The number of iterations, including the shared loops."""
        return self.shared_volume * math.prod(self.extents)

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces over any loop."""
        return any(self.reduced)

    @property
    def vector_extent(self) -> int:
        """The number of iterations of the loop that a schedule would vectorise, or 1."""
        if self.is_reduction:
            axis = self.vector_axis()
            return 1 if axis is None else self.extents[axis]
        return next((extent for extent in reversed(self.extents) if extent > 1), 1)

    @property
    def vectorizable_last(self) -> bool:
        """Whether the innermost loop may become a vector, possibly a strided one."""
        last = self.variables[-1]
        if last is None or self.irregular or any(uses(c, last) for c in self.conditions):
            return False
        indices = [index for access in self.accesses for index in access.indices]
        return all(index.same_as(last) or not uses(index, last) for index in indices)

    def is_constant_from(self, start: int) -> bool:
        """Return whether all loops from ``start`` on store the same number."""
        variables = [v for v in self.variables[start:] if v is not None]
        return not any(access.uses(v) for access in self.accesses[1:] for v in variables)

    def contiguous_from(self, start: int) -> bool:
        """Return whether the loops from ``start`` on can be one loop over consecutive elements."""
        inner = range(start, len(self.extents))
        kept = [i for i in inner if self.extents[i] > 1]
        variables = tuple(self.variables[i] for i in kept)
        extents = tuple(self.extents[i] for i in kept)
        if self.irregular or any(uses(c, v) for c in self.conditions for v in variables):
            return False
        return all(
            access.walks(variables, extents) or not any(access.uses(v) for v in variables)
            for access in self.accesses
        )

    def vector_axis(self) -> int | None:
        """Return the innermost spatial loop if every access has stride 1 or 0 along it, or None."""
        loops = zip(self.extents, self.reduced, strict=True)
        spatial = [i for i, (extent, reduced) in enumerate(loops) if extent > 1 and not reduced]
        if not spatial or self.irregular:
            return None
        var = self.variables[spatial[-1]]
        if any(uses(c, var) for c in self.conditions):
            return None
        store, *loads = (access.stride(var) for access in self.accesses)
        return spatial[-1] if store == 1 and all(s in (0, 1) for s in loads) else None


def nodes_of(expr: Any, kinds: Any) -> list[Any]:
    """Return the nodes of a kind, or of several, in an expression or a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (kinds, found.append))
    return found


def uses(expr: Any, var: Any) -> bool:
    """Return whether ``expr`` depends on ``var``."""
    return any(node.same_as(var) for node in nodes_of(expr, Var))


def size_of(extent: Any) -> int | None:
    """Return an extent; for one that a call chooses an example that no vector divides, and that
    differs from those of other variables. None if it is no product of such.
    """
    if isinstance(extent, tirx.IntImm):
        return int(extent)
    if isinstance(extent, Var):
        name = str(extent.name)
        number = int(name[1:]) if name[:1] == "e" and name[1:].isdecimal() else None
        return None if number is None else _prime(number)
    if isinstance(extent, tirx.Mul):
        both = [size_of(each) for each in (extent.a, extent.b)]
        return None if None in both else math.prod(each for each in both if each is not None)
    if isinstance(extent, tirx.Cast):
        return size_of(extent.value)
    return None


@functools.cache
def _prime(number: int) -> int:
    """Return a prime number of some hundreds, another one for each ``number``."""
    found, candidate = -1, 211
    while True:
        if all(candidate % each for each in range(2, math.isqrt(candidate) + 1)):
            found += 1
            if found == number:
                return candidate
        candidate += 1


def read_stage(sch: Schedule, block: Any, shared_loops: int = 0) -> Stage | None:
    """Return the description of a block; None if it is not a single store inside static loops."""
    node = sch.get(block)
    if not isinstance(node.body, tirx.BufferStore):
        return None
    loops = [sch.get(loop) for loop in sch.get_loops(block)]
    known = [size_of(loop.extent) for loop in loops]
    if None in known:
        return None
    extents = [each for each in known if each is not None]
    realizes = nodes_of(sch.mod["main"].body, SBlockRealize)
    (realize,) = (each for each in realizes if each.block.same_as(node))
    kinds = {0: False, 2: True}  # IterVar.DataPar, IterVar.CommReduce
    if any(int(v.iter_type) not in kinds for v in node.iter_vars):
        return None
    variables: list[Any] = []
    reduced: list[bool] = []
    for loop, extent in zip(loops[shared_loops:], extents[shared_loops:], strict=True):
        driven = [
            v
            for v, value in zip(node.iter_vars, realize.iter_values, strict=True)
            if value.same_as(loop.loop_var)
        ]
        if len(driven) != 1 and extent > 1:
            return None
        variables.append(driven[0].var if driven and extent > 1 else None)
        reduced.append(bool(driven) and kinds[int(driven[0].iter_type)])
    scan = _Scan(accumulator=node.body.buffer)
    scan.value(node.body.value)
    if scan.opaque:
        return None
    store = _access(node.body.buffer, node.body.indices)
    return Stage(
        name=str(node.name_hint),
        dtype=str(node.body.buffer.dtype),
        shared_loops=shared_loops,
        shared_volume=math.prod(extents[:shared_loops]),
        variables=tuple(variables),
        extents=tuple(extents[shared_loops:]),
        reduced=tuple(reduced),
        accesses=(store, *scan.loads),
        conditions=tuple(scan.conditions),
        expensive=scan.expensive,
        irregular=scan.irregular,
        leaves=scan.leaves,
        nesting=scan.nesting,
    )


def _access(buffer: Any, indices: Any) -> Access:
    kept = [
        (-1 if (size := size_of(extent)) is None else size, index)
        for extent, index in zip(buffer.shape, indices, strict=True)
        if not (isinstance(extent, tirx.IntImm) and int(extent) == 1)
    ]
    return Access(tuple(extent for extent, _ in kept), tuple(index for _, index in kept))


def _is_opaque(operator: Any) -> bool:
    """Return whether a call may do more than compute a value of its arguments."""
    if not isinstance(operator, Op) or operator.name == _LIBRARY_CALL:
        return True
    effect = operator.get_attr("TCallEffectKind")
    return effect is None or int(effect) > _PURE


@dataclass(slots=True, kw_only=True)
class _Scan:
    """A walk through a stored value; ``accumulator`` is the buffer that it is stored to."""

    accumulator: Any
    loads: list[Access] = field(default_factory=list)
    conditions: list[Any] = field(default_factory=list)
    expensive: bool = False
    irregular: bool = False
    opaque: bool = False
    leaves: int = 0
    nesting: int = 0

    def value(self, expr: Any) -> None:
        """Record the loads and calls of ``expr``."""
        visitors = [
            (TensorLoad, self._load),
            (Call, self._call),
            (Var, self._var),
            ((tirx.Max, tirx.Min), self._extremum),
            ((tirx.FloatImm, tirx.IntImm), self._constant),
        ]
        tvm_ffi.structural_walk(expr, visitors, order="pre")

    def _load(self, load: Any) -> Any:
        self.leaves += 1
        if not load.source.same_as(self.accumulator):
            self.loads.append(_access(load.source, load.indices))
        nested = _Scan(accumulator=self.accumulator)
        for index in load.indices:
            if not isinstance(index, Var):  # most indices are, and walking them takes time
                nested.value(index)
        self.irregular = self.irregular or bool(nested.loads or nested.conditions)
        self.loads += nested.loads
        return tvm_ffi.WalkResult.SKIP

    def _call(self, call: Any) -> Any:
        name = str(getattr(call.op, "name", ""))
        self.opaque = self.opaque or _is_opaque(call.op)
        self.expensive = self.expensive or name not in CHEAP_CALLS
        if name not in CHEAP_CALLS:
            self.nesting += _NESTED_CALLS.get(name, 1)
        if name != IF_THEN_ELSE:
            return None
        condition, *values = call.args
        self.conditions.append(condition)
        reads = _Scan(accumulator=self.accumulator)
        reads.value(condition)
        self.loads += reads.loads
        for value in values:
            self.value(value)
        return tvm_ffi.WalkResult.SKIP

    def _constant(self, _: Any) -> None:
        self.leaves += 1

    def _extremum(self, extremum: Any) -> None:
        constant = isinstance(extremum.a, tirx.FloatImm) or isinstance(extremum.b, tirx.FloatImm)
        self.nesting += not constant

    def _var(self, _: Any) -> None:
        self.irregular = True
