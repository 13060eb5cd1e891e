"""The program for any size, and those for a few sizes that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm import tirx

from neocpu.building.pipeline import CallPlan
from neocpu.building.program import Operand
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Entry, Term, values_of
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.ir.row_analysis import kernel_rows
from neocpu.lowering.recipes import RECIPE
from neocpu.schedules.tir.any_size import KernelTree
from neocpu.schedules.vocabulary.traced_sizes import ATTRIBUTE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """A program for one size, whose tensors share no memory (`plan_memory`)."""

    sizes: tuple[int, ...]  # the extents of the inputs that vary
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: int  # the number of the model's packed weights, which all samples share
    kernels: Mapping[str, tirx.PrimFunc]
    planned: CallPlan
    _trees: dict[str, KernelTree] = field(default_factory=dict)

    def tree(self, name: str) -> KernelTree:
        """Return a kernel for comparisons."""
        if name not in self._trees:
            func = self.kernels[name]
            for attribute in (RECIPE, ATTRIBUTE, kernel_rows.ATTRIBUTE):  # they name sizes
                func = func.without_attr(attribute)
            self._trees[name] = KernelTree(func)
        return self._trees[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTensor:
    """A tensor between two kernels, an input or an output."""

    dtype: str
    shape: tuple[Term, ...]
    block: int | None = None  # the number of its block of memory, of which no two overlap
    offset: Term | None = None  # bytes from the block's start


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SizedKernel:
    """A kernel; one for any size takes an additional first argument, whose shape is `extents`."""

    func: tirx.PrimFunc
    typical: str  # the name of the kernel that the first sample has in its place
    extents: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SizedProgram:
    """Calls of kernels, in order. Operands are numbers of tensors: inputs, weights, activations."""

    entries: tuple[Entry, ...]  # integers that follow from the sizes; see `ValueTable`
    kernels: Mapping[str, SizedKernel]
    calls: tuple[tuple[str, tuple[Operand, ...]], ...]
    results: tuple[Operand, ...]
    inputs: tuple[SizedTensor, ...]
    outputs: tuple[SizedTensor, ...]
    constants: tuple[np.ndarray, ...]  # weights that follow those of the model
    activations: tuple[SizedTensor, ...]
    # The sizes of samples of which some kernel is a special case, those of most kernels first: what
    # a kernel does for such sizes was compared with nothing.
    apart: tuple[tuple[int, ...], ...]

    def values(self, sizes: Sequence[int]) -> list[int]:
        """Return the integers that terms refer to."""
        return values_of(self.entries, sizes)


class TooFewError(UnsupportedError):
    """A kernel of any size needs more samples.

    `choices`: for each formula that is still to be found, sizes; each of them decides it.
    """

    def __init__(self, text: str, choices: Sequence[frozenset[tuple[int, ...]]] = ()) -> None:
        super().__init__(text)
        self.choices = choices
