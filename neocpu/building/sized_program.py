"""One program for any size, made of programs for a few sizes.

Programs of one plan make the same calls at all sizes. Their kernels and their tensors differ only
in integers, which follow from the sizes of the inputs (`neocpu.schedules.tir`). A size whose kernel
is a special case, such as one whose rows are whole register tiles, is left out for that kernel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tvm import tirx

from neocpu.building.pipeline import CallPlan
from neocpu.building.program import Operand
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Entry, Term, values_of
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.lowering.recipes import RECIPE
from neocpu.schedules.tir.any_size import NotGeneralError, generalise
from neocpu.schedules.tir.noted_formulas import noted_formulas, terms_of
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.traced_sizes import ATTRIBUTE, from_text

FEWEST: Final = 4
"""The fewest sizes from whose kernels a general one is made."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """A program for one size, whose tensors share no memory (`plan_memory`)."""

    sizes: tuple[int, ...]  # the extents of the inputs that vary
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[bytes, ...]  # digests of the model's packed weights
    kernels: Mapping[str, tirx.PrimFunc]
    planned: CallPlan


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

    def values(self, sizes: Sequence[int]) -> list[int]:
        """Return the integers that terms refer to."""
        return values_of(self.entries, sizes)


def merge_samples(samples: Sequence[Sample]) -> SizedProgram:
    """Return the program that equals each of the samples'.

    Raises UnsupportedError: they differ in more than sizes; says which kernel or tensor.
    """
    _check_alike(samples)
    first = samples[0].planned
    table = ValueTable(_sizes_of(samples))
    inputs = _specs(table, [each.inputs for each in samples])
    outputs = _specs(table, [each.outputs for each in samples])
    activations = tuple(_activations(table, samples))
    entries = tuple(table.entries)
    kernels = {}
    for name in samples[0].kernels:
        kernels[name], entries = _merged_kernel(name, samples, entries)
    return SizedProgram(
        entries=entries,
        kernels=kernels,
        calls=first.program.calls,
        results=first.program.results,
        inputs=inputs,
        outputs=outputs,
        constants=first.constants,
        activations=activations,
    )


def _sizes_of(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Return the samples' values of each extent."""
    return list(zip(*(each.sizes for each in samples), strict=True))


def _check_alike(samples: Sequence[Sample]) -> None:
    first, *others = (each.planned for each in samples)
    if first.program.repeats:
        raise UnsupportedError("a loop or a branch has kernels of one size: give a single shape")
    for one, sample in zip(others, samples[1:], strict=True):
        same = one.program.calls == first.program.calls
        if not same or one.program.results != first.program.results:
            raise UnsupportedError(
                f"the network makes other calls for sizes {sample.sizes} than for "
                f"{samples[0].sizes}: give a single shape"
            )
        pairs = zip(one.constants, first.constants, strict=False)
        equal = all(np.array_equal(mine, its) for mine, its in pairs)
        equal &= sample.weights == samples[0].weights
        if not equal or len(one.constants) != len(first.constants):
            raise UnsupportedError(
                "a constant of the network depends on its size: give a single shape"
            )


def _specs(table: ValueTable, every: Sequence[Sequence[TensorSpec]]) -> tuple[SizedTensor, ...]:
    """Return inputs or outputs; ``every`` has those of each sample."""
    return tuple(
        SizedTensor(dtype=one[0].dtype, shape=_terms(table, [s.shape for s in one], one[0].name))
        for one in zip(*every, strict=True)
    )


def _activations(table: ValueTable, samples: Sequence[Sample]) -> Iterator[SizedTensor]:
    for number, placements in enumerate(
        zip(*(each.planned.activations for each in samples), strict=True)
    ):
        what = f"activation {number}"
        starts = [each.planned.starts for each in samples]
        blocks = [
            bisect_right(own, placement.offset) - 1
            for own, placement in zip(starts, placements, strict=True)
        ]
        if len({*blocks}) > 1 or len({placement.dtype for placement in placements}) > 1:
            raise UnsupportedError(f"{what} is another tensor at another size: give a single shape")
        inner = [
            placement.offset - own[block]
            for own, placement, block in zip(starts, placements, blocks, strict=True)
        ]
        yield SizedTensor(
            dtype=placements[0].dtype,
            shape=_terms(table, [placement.shape for placement in placements], what),
            block=blocks[0],
            offset=_terms(table, [(each,) for each in inner], what)[0],
        )


def _terms(table: ValueTable, shapes: Sequence[tuple[int, ...]], what: str) -> tuple[Term, ...]:
    found = table.find_all(list(zip(*shapes, strict=True)))
    if found is None:
        raise UnsupportedError(
            f"no formula was found for the extents of {what}, {shapes[0]} and {shapes[1]} at two "
            "sizes: give a single shape"
        )
    return tuple(found)


def _merged_kernel(
    name: str, samples: Sequence[Sample], entries: tuple[Entry, ...]
) -> tuple[SizedKernel, tuple[Entry, ...]]:
    """Return a kernel for any size, and the entries with those that it needs."""
    given = [each.kernels[name] for each in samples]
    functions = [each.without_attr(RECIPE).without_attr(ATTRIBUTE) for each in given]
    try:
        found = generalise(functions, FEWEST)
    except NotGeneralError as error:
        raise UnsupportedError(
            f"kernel '{name}' is not the same for all sizes ({error}): give a single shape"
        ) from None
    if not found.extents:
        return SizedKernel(func=found.func), entries
    alike = [samples[number] for number in found.alike]
    table = ValueTable(_sizes_of(alike), entries, _sizes_of(samples))
    texts = [str(given[number].attrs.get(ATTRIBUTE, "[]")) for number in found.alike]
    noted = [from_text(text) for text in texts]
    own = {
        size: table.find([each[size] for each in noted])
        for size in noted[0]
        if isinstance(size, str)
    }
    known = {size: term for size, term in own.items() if term is not None}
    formulas = noted_formulas(noted) if len(known) == len(own) else {}
    terms = terms_of(table, found.extents, formulas, known)
    if terms is None:
        raise UnsupportedError(
            f"no formula was found for an extent of kernel '{name}': give a single shape"
        )
    return SizedKernel(func=found.func, extents=tuple(terms)), tuple(table.entries)
