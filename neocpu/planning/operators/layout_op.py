"""The contract of an operator that runs in several layouts: all that is known of one elsewhere.

A subclass says how the operator is found in a Relax function, what it costs in a format, and which
kernel it becomes; `neocpu.planning.operators.kinds` lists it. Extraction, the searches, the layout
pass and reports ask nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Var

from neocpu.ir.expressions import Expr
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_class import MemoryClass
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import Grid
from neocpu.planning.weight_origin import Unpacked
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import CpuTarget

Shape4: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One feature map an operator reads.

    Attributes
    ----------
    var : Var
        The Relax variable.
    shape : tuple of int
        Its logical NCHW shape.
    dtype : str
        Its element type in the model.
    in_output_layout : bool
        Whether it is read in the operator's output layout (an epilogue operand) rather than in its
        input layout.
    """

    var: Var
    shape: Shape4
    dtype: str
    in_output_layout: bool = False


class Function(Protocol):
    """What an operator may ask of the function that it is looked for in."""

    def name(self, kind: str) -> str:
        """Return a new name for an operator of ``kind``."""

    def definition(self, var: Var) -> Expr | None:
        """Return what ``var`` is bound to; None of a parameter."""

    def definitions(self) -> dict[Var, Expr]:
        """Return every variable's value, in program order."""

    def readers(self, var: Var) -> frozenset[Var]:
        """Return the variables whose values read ``var``."""

    def is_result(self, var: Var) -> bool:
        """Whether the function returns ``var``."""

    def grid(self, var: Expr) -> Grid | None:
        """Return the grid that a feature map's values are on, if there is one."""

    def claimed_by(self, kind: type[LayoutOp]) -> frozenset[Var]:
        """Return what ``kind`` claimed of the function."""


def sole_reader(function: Function, var: Var) -> Var | None:
    """Return the variable whose value reads ``var``, if it is one and the function does not."""
    readers = function.readers(var)
    if len(readers) != 1 or function.is_result(var):
        return None
    return next(iter(readers))


def sole_definition(function: Function, expr: Expr) -> Expr | None:
    """Return what a variable that is read once is bound to."""
    if not isinstance(expr, Var) or sole_reader(function, expr) is None:
        return None
    return function.definition(expr)


def read_within(function: Function, inner: set[Var], outer: Set[Var]) -> frozenset[Var]:
    """Return those of ``inner`` that nothing reads but others of them, or ``outer``."""
    kept = {var for var in inner if not function.is_result(var)}
    while True:
        fewer = {var for var in kept if function.readers(var) <= kept | outer}
        if fewer == kept:
            return frozenset(kept)
        kept = fewer


class Emitter(Protocol):
    """What an operator needs to become a kernel in a module."""

    @property
    def target(self) -> CpuTarget:
        """CPU to make kernels for."""

    @property
    def threads(self) -> int:
        """Threads to make kernels for."""

    def kernel(self, name: str, key: Any, build: Callable[[], Any]) -> Any:
        """Return the kernel of operator ``name``, built once for equal keys."""

    def weight(
        self, array: NDArray[np.generic], key: Any = None, origin: Unpacked | None = None
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
    """An operator that runs in several layouts.

    Attributes
    ----------
    name : str
        Unique in the network, such as ``conv2d_7``.
    result : Var
        The variable that holds the result, after the epilogue.
    shape : tuple of int
        The result's logical NCHW shape.
    dtype : str
        The result's element type in the model.
    reads : tuple of Read
        The feature maps it reads.
    absorbed : frozenset of Var
        Variables that no longer exist once the operator and its epilogue are one.
    in_halves : bool
        Whether what it reads may be bfloat16, and what it writes too if it is nothing new.
    """

    stays_in_registers: ClassVar[bool] = False
    """Whether an operator of this kind that alone reads such a result fuses with its maker."""
    takes_halves: ClassVar[bool] = False
    """Whether kernels of this kind read bfloat16."""

    name: str
    result: Var
    shape: Shape4
    dtype: str
    reads: tuple[Read, ...]
    absorbed: frozenset[Var]
    in_halves: bool = False

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return variables that operators of this kind may absorb, so that no other takes them."""
        return frozenset()

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> LayoutOp | None:
        """Return the operator that ``var``, bound to ``value``, is; None if of another kind."""
        return None

    def describe(self, choice: Choice) -> str:
        """Return what it computes as ``choice`` has it, for people."""
        return "x".join(map(str, self.shape))

    def numerics(self, choice: Choice) -> Numerics | None:
        """Return the element types that ``choice`` computes with; None where none are chosen."""
        return None

    def error_factor(self, choice: Choice) -> float:
        """Return what it errs at most, as a multiple of direct summation in float32."""
        return 1.0

    def proof(self, choice: Choice) -> SumBound | None:
        """Return why ``choice`` loses nothing of integers; None where that needs no proof."""
        return None

    @property
    def flops(self) -> int:
        """Floating-point operations; 0 of what is bound by memory."""
        return 0

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """Pairs of element types that it can read and write, what the model has first."""
        return ((self.dtype, self.dtype),)

    @property
    def between(self) -> tuple[tuple[Format, Format], ...]:
        """Formats of different layouts that it can read and write besides."""
        return ()

    def computing(self, precision: Precision, target: CpuTarget, small: bool = False) -> LayoutOp:
        """Return the operator with those of its ways that ``precision`` and a CPU admit.

        If ``small``, of float32 and narrower numbers the narrower ones, however long they take.
        """
        if precision is not Precision.BF16 or self.dtype != "float32" or not self.takes_halves:
            return self
        return replace(self, in_halves=True)

    def memory_class(self, layout: DataLayout) -> MemoryClass | None:
        """Return whose measurements tell what it costs in ``layout``; None if none do."""
        return None

    def moved(self, in_registers: Container[Var]) -> list[Shape4]:
        """Return the shapes of what it reads from memory."""
        return [read.shape for read in self.reads if read.var not in in_registers]

    def cost(
        self,
        form: Format,
        costs: MemoryCosts,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Return what it costs in ``form``: by default, to move the bytes that it reads and writes.

        Parameters
        ----------
        in_registers : container of Var
            What is not moved: see `Network.in_registers`.
        copied : container of Read
            See `Network.copied_parts`.
        """
        moved, stored = self.moved(in_registers), self.result not in in_registers
        if stored:
            moved.append(self.shape)
        kind = self.memory_class(form.layout)
        return costs.stream(kind, form, moved, math.prod(self.shape), forks=stored)

    def in_network(self, choice: Choice, costs: NetworkCosts) -> NetworkTime | None:
        """Return what its kernel takes in a run; None if its loops tell it."""
        return None

    def parts(self, form: Format) -> tuple[Read, ...]:
        """Return what its result in ``form`` is made of, end to end, if that is all there is."""
        return ()

    def is_view(self, form: Format) -> bool:
        """Whether its result in ``form`` is a stretch of what it reads."""
        return False

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        """Return the bytes of constants that it reads in ``form``: nobody else counts them."""
        return 0

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit its kernel's call on ``reads``, which are in the formats of ``choice``."""
        raise AssertionError("abstract")
