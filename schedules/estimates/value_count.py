"""The cost of computing values and indices within their loops, for `work_count`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from neocpu.schedules.estimates.expressions import (
    PLAIN_CALLS,
    ROOTS,
    Indices,
    Reader,
    bytes_of,
    dtype_of,
    is_library_call,
    parts,
)
from neocpu.schedules.estimates.kernel_work import (
    CLASSES,
    CONVERT,
    DIVIDE,
    GATHER,
    INDEX,
    LIBRARY,
    SCALAR,
    VECTOR,
)
from neocpu.schedules.estimates.touched_bytes import Access, Loop
from neocpu.schedules.vocabulary.target import CpuTarget

# The cycles of an instruction on one of two units, on the store unit, and on the divider.
OPERATION: Final = 0.5
LOAD: Final = 0.5
STORE: Final = 1.0
QUOTIENT: Final = 8.0
ROOT: Final = 12.0
# The cycles per element that is gathered, that is stored alone, and that a C library call computes.
FETCHED: Final = 1.0
PUT: Final = 1.5
CALLED: Final = 20.0
# The distance in elements from which on neighbours of a loop share no cache line.
FAR: Final = 16
# The cycles of a quotient or remainder of an index by a constant: a product and a shift.
DIGIT: Final = 1.0
# The instructions of a maximum that is NaN if either operand is.
EXTREMUM_STEPS: Final = 3
# Scalars are divided faster than vectors.
SINGLE_SHARE: Final = 0.5
_CONVERSIONS: Final = ("floor", "ceil", "trunc", "round", "nearbyint", "reinterpret", "shift_left")


@dataclass(slots=True, kw_only=True)
class Nest:
    """A loop nest that is being read (see `LoopWork`), and the accesses of each statement."""

    tasks: float = 1.0
    forks: float = 0.0
    cycles: list[float] = field(default_factory=lambda: [0.0] * len(CLASSES))
    statements: list[list[Access]] = field(default_factory=list)


class ValueCount:
    """A counter that adds the cost of values within `loops` to `nest`.

    - `loops`: the loops, outermost first.
    - `vector`: the position of the loop whose iterations are vector lanes.
    - `depths`: the innermost loop that each variable depends on; -1 for none.
    - `accesses`: the accesses of the statement that is being read.
    - `computed`: the expressions that the statement has computed, which are not computed again,
      with the loop that each depends on.
    """

    def __init__(self, target: CpuTarget, parameters: Sequence[Any]) -> None:
        self.target = target
        self.indices = Indices()
        self.loops: list[Loop] = []
        self.vector: int | None = None
        self.depths: dict[Any, int] = {}
        self.nest = Nest()
        self.accesses: list[Access] = []
        self.computed: dict[Any, int] = {}
        self.owners: dict[Any, Any] = {}
        self._parameters = frozenset(parameters)

    def iterations(self, depth: int) -> float:
        """Return how often a computation outside all loops after ``depth`` runs; one under a
        condition, or in a loop that ends on one, stays in it.
        """
        return math.prod(
            loop.extent
            for place, loop in enumerate(self.loops)
            if place <= depth or loop.var is None
        )

    def depth(self, expr: Any) -> int:
        """Return the position of the innermost loop that a value depends on; -1 for none."""
        if isinstance(expr, Var):
            return self.depths.get(expr, -1)
        inner = expr.indices if isinstance(expr, TensorLoad) else parts(expr)
        return max(map(self.depth, inner), default=-1)

    def charge(self, kind: int, cycles: float, depth: int, dtype: tuple[str, int]) -> None:
        """Charge for an instruction on whole vectors, or on a number, which is `SCALAR`."""
        size = bytes_of(dtype[0]) * dtype[1] / self.target.vector_bytes
        count = self.iterations(depth)
        if self.vector is not None and depth >= self.vector:
            lanes = self.loops[self.vector].extent
            count *= math.ceil(lanes * size) / lanes
        elif dtype[1] > 1:
            count *= math.ceil(size)
        elif kind in (VECTOR, CONVERT):
            kind = SCALAR
        elif kind == DIVIDE:
            cycles *= SINGLE_SHARE
        self.nest.cycles[kind] += cycles * count

    def charge_each(self, kind: int, cycles: float, depth: int, lanes: int = 1) -> None:
        self.nest.cycles[kind] += cycles * lanes * self.iterations(depth)

    def value(self, expr: Any, *, joined: bool = False) -> int:
        """Count the computation of a value, whose last operation may be part (`joined`) of its
        reader's; return the innermost loop that it depends on.
        """
        if isinstance(expr, Var):
            return self.depths.get(expr, -1)
        if not isinstance(expr, TensorLoad) and not parts(expr):
            return -1
        key = tvm_ffi.StructuralKey(expr)
        if key not in self.computed:
            self.computed[key] = self._new_value(expr, joined=joined)
        return self.computed[key]

    def _new_value(self, expr: Any, *, joined: bool) -> int:
        if isinstance(expr, TensorLoad):
            return self.access(expr.source, expr.indices, stores=False)
        if isinstance(expr, tirx.Let):
            self.indices.bind(expr.var, expr.value)
            self.depths[expr.var] = self.value(expr.value)
            return max(self.depths[expr.var], self.value(expr.body))
        depth, sums = -1, isinstance(expr, tirx.Add | tirx.Sub)
        for part in parts(expr):
            taken = sums and isinstance(part, tirx.Mul)
            sums = sums and not taken  # one of two products
            depth = max(depth, self.value(part, joined=taken))
        if not joined:
            self._operation(expr, depth)
        return depth

    def _operation(self, expr: Any, depth: int) -> None:
        if isinstance(expr, Call):
            self._call(expr, depth)
            return
        if isinstance(expr, tirx.Broadcast | tirx.Ramp):
            return
        dtype = dtype_of(expr)
        real = dtype[0].startswith(("float", "bfloat"))
        if isinstance(expr, tirx.Div | tirx.FloorDiv | tirx.FloorMod | tirx.Mod):
            if real and not _is_power_of_two(expr.b):  # by which LLVM multiplies by the inverse
                self.charge(DIVIDE, QUOTIENT, depth, dtype)
            elif real:
                self.charge(VECTOR, OPERATION, depth, dtype)
            else:
                self.charge_each(INDEX, DIGIT, depth, dtype[1])
            return
        constant = any(isinstance(part, tirx.FloatImm) for part in parts(expr))
        extremum = isinstance(expr, tirx.Min | tirx.Max) and real and not constant
        operand = dtype_of(parts(expr)[-1]) if dtype[0].startswith("bool") else dtype
        self.charge(VECTOR, OPERATION * (EXTREMUM_STEPS if extremum else 1), depth, operand)

    def _call(self, call: Any, depth: int) -> None:
        name, dtype = str(getattr(call.op, "name", "")), dtype_of(call)
        if name in ROOTS:
            inverted = name.endswith("rsqrt")
            self.charge(DIVIDE, ROOT + (QUOTIENT if inverted else 0), depth, dtype)
        elif name in PLAIN_CALLS:
            kind = CONVERT if name.rpartition(".")[2] in _CONVERSIONS else VECTOR
            self.charge(kind, OPERATION, depth, dtype)
        elif is_library_call(call):
            self.charge_each(LIBRARY, CALLED, depth, dtype[1])

    def access(self, buffer: Any, indices: Any, *, stores: bool) -> int:
        """Count a load or a store; return the innermost loop that its address depends on."""
        depth = max(map(self._index, indices), default=-1)
        lanes, apart = 1, False
        for index in indices:
            if (width := dtype_of(index)[1]) > 1:
                lanes = width
                apart = not (isinstance(index, tirx.Ramp) and _is_one(index.stride))
        offset = self.indices.offset(buffer.shape, indices)
        if self.vector is not None and depth >= self.vector:
            stride = stride_along(self.loops[self.vector], offset)
            apart = apart or stride not in (0, 1)
        elif self.loops and self.loops[-1].var is not None and depth == len(self.loops) - 1:
            stride = stride_along(self.loops[-1], offset)
            apart = lanes == 1 and stride is not None and abs(stride) >= FAR
        if apart:
            self.charge_each(GATHER, PUT if stores else FETCHED, depth, lanes)
        else:
            self.charge(VECTOR, STORE if stores else LOAD, depth, (str(buffer.dtype), lanes))
        if str(buffer.scope()) != "local":
            self.accesses.append(self._described(buffer, offset, depth, lanes))
        return depth

    def _index(self, index: Any) -> int:
        if isinstance(index, Var):
            return self.depths.get(index, -1)
        if isinstance(index, TensorLoad):
            return self.value(index)
        depth = max(map(self._index, parts(index)), default=-1)
        if isinstance(index, tirx.FloorDiv | tirx.FloorMod):
            self.charge(INDEX, DIGIT, depth, dtype_of(index))
        return depth

    def _described(self, buffer: Any, offset: Reader, depth: int, lanes: int) -> Access:
        start = offset({})
        strides = []
        for place, loop in enumerate(self.loops):
            if loop.var is None or loop.extent <= 1 or place > depth:
                strides.append(0.0)
                continue
            last = max(1, int(loop.extent) - 1)
            near, end = offset({loop.var: 1}), offset({loop.var: last})
            if start is None or near is None or end is None:  # data decide: any address
                strides.append(math.nan)
            else:
                strides.append(abs(end - start) / last or float(abs(near - start)))
        size, owner = bytes_of(str(buffer.dtype)), self.owners.get(buffer, buffer)
        whole = math.prod(int(e) if isinstance(e, tirx.IntImm) else 1 for e in buffer.shape)
        return Access(
            buffer=owner,
            is_parameter=owner in self._parameters,
            start=-1.0 if start is None else float(start),
            width=size * lanes,
            whole=float(whole * size),
            strides=tuple(stride * size for stride in strides),
            loops=tuple(self.loops),
        )


def stride_along(loop: Loop, offset: Reader) -> float | None:
    """Return the distance of neighbours along a loop, in elements; None if it varies."""
    last = max(1, int(loop.extent) - 1)
    first, second, end = (offset({loop.var: i}) for i in (0, 1, last))
    if first is None or second is None or end is None:
        return None
    return second - first if end - first == (second - first) * last else None


def _is_power_of_two(expr: Any) -> bool:
    constant = expr.value if isinstance(expr, tirx.Broadcast) else expr
    if not isinstance(constant, tirx.FloatImm):
        return False
    return abs(math.frexp(float(constant.value))[0]) == 0.5


def _is_one(stride: Any) -> bool:
    return isinstance(stride, tirx.IntImm) and int(stride) == 1
