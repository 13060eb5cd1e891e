"""The interface of an operator that runs in several layouts.

A subclass finds the operator in a Relax function, returns its cost in a format, and makes its
kernel; `neocpu.planning.operators.kinds` lists the subclasses. Extraction, the searches, the layout
pass and reports use nothing but this interface.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Var

from neocpu.ir.constants import Array
from neocpu.ir.expressions import Expr
from neocpu.ir.uses import consumers, definitions, used_vars
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_costs import MemoryClass, MemoryCosts
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import Grid, grids_of
from neocpu.planning.weight_origin import Packing, Unpacked
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import CpuTarget

Shape4: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One feature map an operator reads."""

    var: Var
    shape: Shape4  # its logical NCHW shape
    dtype: str  # its element type in the model
    in_output_layout: bool = False  # whether it is an epilogue's operand


@dataclass(frozen=True, slots=True)
class Around:
    """The surroundings of an operator whose feature maps are all in one format."""

    in_registers: Container[Var] = ()  # feature maps that are not moved: `Network.in_registers`
    copied: Container[Read] = ()  # see `Network.copied_parts`


ALONE: Final = Around()


class Function:
    """The function in which operators are looked for."""

    def __init__(self, func: relax.Function) -> None:
        self._definitions = definitions(func)  # in program order
        self._readers = consumers(func)
        self._results = set(used_vars(func.body.body))
        self.grids = grids_of(self._definitions)
        self._claims: Mapping[type[LayoutOp], frozenset[Var]] = {}
        self._numbers: Counter[str] = Counter()

    def name(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}_{self._numbers[kind] - 1}"

    def definition(self, var: Var) -> Expr | None:
        """Return the value that ``var`` is bound to; None for a parameter."""
        return self._definitions.get(var)

    def definitions(self) -> dict[Var, Expr]:
        return self._definitions

    def readers(self, var: Var) -> frozenset[Var]:
        return frozenset(self._readers[var])

    def is_result(self, var: Var) -> bool:
        return var in self._results

    def grid(self, var: Expr) -> Grid | None:
        return self.grids.get(var)

    def claimed_by(self, kind: type[LayoutOp]) -> frozenset[Var]:
        return self._claims[kind]


def sole_reader(function: Function, var: Var) -> Var | None:
    """Return the only reader of ``var``; None if there are others, or the function returns it."""
    readers = function.readers(var)
    if len(readers) != 1 or function.is_result(var):
        return None
    return next(iter(readers))


def sole_definition(function: Function, expr: Expr) -> Expr | None:
    """Return the value of a variable with one reader; None for any other expression."""
    if not isinstance(expr, Var) or sole_reader(function, expr) is None:
        return None
    return function.definition(expr)


def read_within(function: Function, inner: set[Var], outer: Set[Var]) -> frozenset[Var]:
    """Return the variables of ``inner`` whose readers are among these variables or ``outer``."""
    kept = {var for var in inner if not function.is_result(var)}
    while True:
        fewer = {var for var in kept if function.readers(var) <= kept | outer}
        if fewer == kept:
            return frozenset(kept)
        kept = fewer


class Emitter(Protocol):
    """The functions that an operator needs to become a kernel in a module."""

    @property
    def target(self) -> CpuTarget:
        """The CPU to make kernels for."""

    @property
    def threads(self) -> int:
        """The number of threads to make kernels for."""

    def kernel(self, name: str, key: Any, build: Callable[[Any], Any]) -> Any:
        """Return ``build(key)``, the kernel of operator ``name``, built once for equal keys."""

    def weight(
        self,
        array: NDArray[np.generic] | Packing,
        key: Any = None,
        origin: Unpacked | None = None,
    ) -> Var:
        """Return the parameter that stands for ``array``; once for equal keys."""

    def call(self, kernel: Any, args: list[Expr], form: Format, shape: Shape4) -> Var:
        """Emit the call of a kernel that makes a feature map of NCHW ``shape`` in ``form``."""

    def call_rows(
        self,
        kernel: Any,
        args: list[Expr],
        rows: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: str,
    ) -> Var:
        """Emit the call of a kernel that makes a tensor of shape ``rows``, seen as ``shape``."""

    def plain(self, var: Var, shape: tuple[int, ...]) -> Var:
        """Return ``var`` as the model has it, reshaped."""

    def emit(self, value: Expr) -> Var:
        """Emit any binding."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayoutOp:
    stays_in_registers: ClassVar[bool] = False
    """Whether operators of this kind fuse with each other if one is the only reader of another."""
    takes_halves: ClassVar[bool] = False  # whether kernels of this kind read bfloat16

    name: str  # name that is unique in the network, such as ``conv2d_7``
    result: Var  # variable that holds the result, after the epilogue
    shape: Shape4  # result's logical NCHW shape
    dtype: str  # result's element type in the model
    reads: tuple[Read, ...]  # feature maps it reads
    absorbed: frozenset[Var] = frozenset()  # which no longer exist
    in_halves: bool = False  # reads bfloat16; writes it if it passes values on

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return the variables that operators of this kind may absorb, so that no others do."""
        return frozenset()

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> LayoutOp | None:
        """Return ``var``, bound to ``value``, as an operator; None if it is of another kind."""
        return None

    def describe(self, choice: Choice) -> str:
        return "x".join(map(str, self.shape))

    def numerics(self, choice: Choice) -> Numerics | None:
        """Return the element types of ``choice``; None if there are none to choose."""
        return None

    def error_factor(self, choice: Choice) -> float:
        """Return the bound on its error, as a multiple of that of direct summation in float32."""
        return 1.0

    def proof(self, choice: Choice) -> SumBound | None:
        """Return the proof that integer sums of ``choice`` are exact; None if none is needed."""
        return None

    @property
    def flops(self) -> int:
        """Floating-point operations; 0 for operators bound by memory."""
        return 0

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """Pairs of element types that it can read and write, the model's types first."""
        return ((self.dtype, self.dtype),)

    @property
    def between(self) -> tuple[tuple[Format, Format], ...]:
        """Pairs of formats with different layouts that it can also read and write."""
        return ()

    def computing(self, precision: Precision, target: CpuTarget, small: bool = False) -> LayoutOp:
        """Return the operator with the ways to compute it that ``precision`` and a CPU allow.

        `small` leaves out float32 if there are narrower ways, even slower ones.
        """
        if precision is not Precision.BF16 or self.dtype != "float32" or not self.takes_halves:
            return self
        return replace(self, in_halves=True)

    def memory_class(self, layout: DataLayout) -> MemoryClass | None:
        """Return the class whose measurements correct its cost in ``layout``; None if none do."""
        return None

    def moved(self, in_registers: Container[Var]) -> list[Shape4]:
        """Return the shapes of the feature maps that it reads from memory."""
        return [read.shape for read in self.reads if read.var not in in_registers]

    def cost(self, form: Format, costs: MemoryCosts, around: Around = ALONE) -> Cost:
        """Return its cost in ``form``: by default, that of the bytes that it reads and writes."""
        moved, stored = self.moved(around.in_registers), self.result not in around.in_registers
        if stored:
            moved.append(self.shape)
        kind = self.memory_class(form.layout)
        return costs.stream(kind, form, moved, math.prod(self.shape), forks=stored)

    def in_network(self, choice: Choice, costs: NetworkCosts) -> NetworkTime | None:
        """Return the time of its kernel in a run; None if it is estimated from its loops."""
        return None

    def parts(self, form: Format) -> tuple[Read, ...]:
        """Return the reads that make up its result in ``form`` end to end; none for others."""
        return ()

    def is_view(self, form: Format) -> bool:
        """Whether its result in ``form`` is a contiguous part of what it reads."""
        return False

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        return 0

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the call of its kernel on ``reads``, which are in the formats of ``choice``."""
        raise AssertionError("abstract")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkloadOp(LayoutOp):
    """An operator with one kernel for each format."""

    estimator: ClassVar[Callable[..., float] | None] = None  # see `estimate`
    lowering: ClassVar[Callable[..., Any]]  # see `lower`

    workload: Any  # hashable description of the computation; its string is for people

    def describe(self, choice: Choice) -> str:
        return str(self.workload)

    def estimate(self, form: Format, target: CpuTarget, threads: int) -> float | None:
        """Return the kernel's analytic seconds; None if its cost follows from its bytes."""
        estimator = type(self).estimator
        return None if estimator is None else estimator(self.workload, form, target, threads)

    def lower(self, form: Format, target: CpuTarget, threads: int) -> Any:
        """Return its kernel, whose arguments are the feature maps and then the constants."""
        return type(self).lowering(self.workload, form, target)

    def constants(self, form: Format, target: CpuTarget) -> Iterable[Array]:
        return ()

    def cost(self, form: Format, costs: MemoryCosts, around: Around = ALONE) -> Cost:
        seconds = self.estimate(form, costs.target, costs.threads)
        if seconds is None:
            return LayoutOp.cost(self, form, costs, around)
        return costs.estimated(seconds)

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        return sum(array.nbytes for array in self.constants(form, target))

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        form, target = choice.out_format, emitter.target
        kernel = emitter.kernel(
            self.name,
            (self.workload, form),
            lambda key: replace(self, workload=key[0]).lower(form, target, emitter.threads),
        )
        constants = [emitter.weight(each) for each in self.constants(form, target)]
        return emitter.call(kernel, [*reads, *constants], form, self.shape)
