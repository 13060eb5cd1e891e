"""One program for any size, made of programs for a few sizes.

Programs of one plan make the same calls at all sizes. Their kernels and their tensors differ only
in integers, which follow from the sizes of the inputs (`neocpu.schedules.tir`). A size whose kernel
is a special case, such as one whose rows are whole register tiles, is left out for that kernel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from tvm import tirx

from neocpu.building.object_cache import ORIGIN
from neocpu.building.program import Operand
from neocpu.building.sized.program import (
    Sample,
    SizedKernel,
    SizedProgram,
    SizedTensor,
    TooFewError,
)
from neocpu.building.sized.telling_sizes import telling_sizes
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Entry, Term
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.schedules.tir.any_size import FewError, NotGeneralError, generalise
from neocpu.schedules.tir.noted_formulas import noted_formulas, terms_of
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.formula_text import Formula, from_text
from neocpu.schedules.vocabulary.traced_sizes import ATTRIBUTE

FEWEST: Final = 4
"""The fewest sizes from whose kernels a general one is made."""

TRIES: Final = 3
"""The most sizes that are read to tell two formulas apart: their kernels may be special cases."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Merged:
    """The kernels that were merged from fewer samples: they need no more."""

    kernels: dict[Operand, SizedKernel] = field(default_factory=dict)  # by their first call
    entries: list[Entry] = field(default_factory=list)
    apart: Counter[tuple[int, ...]] = field(default_factory=Counter)  # see `SizedProgram.apart`


def merge_samples(
    samples: Sequence[Sample],
    merged: Merged | None = None,
    *,
    settles: bool = False,
    further: Sequence[tuple[int, ...]] = (),
) -> SizedProgram:
    """Return the program that equals each of the samples'. ``further``: the sizes of more samples.

    Raises UnsupportedError: they differ in more than sizes; says which kernel or tensor.
    TooFewError: more samples may help. ``merged`` keeps what was merged until then. `settles`: see
    `generalise`; what it leaves out is among the sizes `apart`, to be verified.
    """
    merged = merged or Merged()
    every, samples = samples, _most_general(samples)
    if len(samples) < min(FEWEST, len(every)):
        raise TooFewError("the network makes other calls for most sizes: give a single shape")
    _check_constants(samples)
    first = samples[0].planned
    called = _names(samples)
    own_names = _own_names(called, set(samples[0].kernels))
    table = ValueTable(_sizes_of(samples), merged.entries)
    inputs = _specs(table, [each.inputs for each in samples])
    outputs = _specs(table, [each.outputs for each in samples])
    activations = tuple(_activations(table, samples))
    if not merged.entries:
        merged.entries[:] = table.entries
    kernels: dict[str, SizedKernel] = {}
    few: list[TooFewError] = []
    for names, name in own_names.items():
        place = called.index(names)
        _, operands = first.program.calls[place]
        weights = [each in _weights(samples[0]) for each in operands]
        try:
            if place not in merged.kernels:
                merged.kernels[place], entries = _merged_kernel(
                    names, samples, tuple(merged.entries), weights, merged.apart, settles, further
                )
                merged.entries[:] = entries
            kernels[name] = merged.kernels[place]
        except TooFewError as error:
            few.append(error)
    if few:
        raise TooFewError(str(few[0]), [each for error in few for each in error.choices])
    return SizedProgram(
        entries=tuple(merged.entries),
        kernels=kernels,
        calls=tuple(
            (own_names[names], operands)
            for names, (_, operands) in zip(called, first.program.calls, strict=True)
        ),
        results=first.program.results,
        inputs=inputs,
        outputs=outputs,
        constants=first.constants,
        activations=activations,
        apart=_apart(every, samples, merged),
    )


def _apart(
    every: Sequence[Sample], compared: Sequence[Sample], merged: Merged
) -> tuple[tuple[int, ...], ...]:
    """Return the sizes whose calls or kernels were left out, those with most kernels first."""
    odd = (each.sizes for each in every if each not in compared)
    return tuple(dict.fromkeys((*odd, *(sizes for sizes, _ in merged.apart.most_common()))))


def _names(samples: Sequence[Sample]) -> list[tuple[str, ...]]:
    """Return each call's kernel in every sample."""
    calls = zip(*(each.planned.program.calls for each in samples), strict=True)
    return [tuple(name for name, _ in each) for each in calls]


def _own_names(
    called: Sequence[tuple[str, ...]], taken: Collection[str]
) -> dict[tuple[str, ...], str]:
    """Return the name of each kernel for any size, by its names in the samples.

    Two kernels may be one at some sizes: that of height and width at a square. ``taken``: the names
    of the first sample's kernels.
    """
    found: dict[tuple[str, ...], str] = {}
    used: set[str] = set()
    for names in dict.fromkeys(called):
        name, number = names[0], 1
        while name in used or (number > 1 and name in taken):
            number += 1
            name = f"{names[0]}_{number}"
        found[names] = name
        used.add(name)
    return found


def _weights(sample: Sample) -> range:
    """Return the numbers of the tensors that are weights."""
    first = len(sample.inputs)
    return range(first, first + sample.weights + len(sample.planned.constants))


def _sizes_of(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Return the samples' values of each extent."""
    return list(zip(*(each.sizes for each in samples), strict=True))


def _most_general(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples without those of special sizes, which make fewer calls or other ones.

    Where an image is one window, for example, nothing is copied to divide it into windows. The
    calls of the other sizes compute the same there.
    """
    first = samples[0].planned
    if first.program.repeats:
        raise UnsupportedError("a loop or a branch has kernels of one size: give a single shape")
    found = []
    for each in samples:
        program = each.planned.program
        if len(program.calls) > len(first.program.calls):
            raise UnsupportedError(
                f"the network makes more calls for sizes {each.sizes} than for "
                f"{samples[0].sizes}: give a single shape"
            )
        if _operands(each) == _operands(samples[0]) and program.results == first.program.results:
            found.append(each)
    return found


def _operands(sample: Sample) -> list[tuple[Operand, ...]]:
    return [tuple(operands) for _, operands in sample.planned.program.calls]


def _check_constants(samples: Sequence[Sample]) -> None:
    first = samples[0].planned
    for sample in samples[1:]:
        pairs = zip(sample.planned.constants, first.constants, strict=False)
        equal = all(np.array_equal(mine, its) for mine, its in pairs)
        same = sample.weights == samples[0].weights
        if not equal or not same or len(sample.planned.constants) != len(first.constants):
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


def _described(name: str, func: tirx.PrimFunc) -> str:
    """Return a kernel's name with those of the model's tensors that it computes."""
    made = [str(each) for each in func.attrs.get(ORIGIN, [])] if func.attrs else []
    return f"kernel '{name}'" + (f" of {', '.join(map(repr, made))}" if made else "")


def _is_fixed(param: tirx.Buffer) -> bool:
    return all(isinstance(extent, tirx.IntImm) for extent in param.shape)


def _merged_kernel(
    names: tuple[str, ...],
    samples: Sequence[Sample],
    entries: tuple[Entry, ...],
    weights: Sequence[bool],
    apart: Counter[tuple[int, ...]],
    settles: bool,
    further: Sequence[tuple[int, ...]],
) -> tuple[SizedKernel, tuple[Entry, ...]]:
    """Return a kernel for any size, and the entries with those that it needs.

    `names` are its names in the samples, and ``weights`` says which of its operands are weights.
    ``apart`` counts the sizes of samples that are special cases. ``further``: sizes without a
    sample. Raises TooFewError: one of them would tell which formula an integer has.
    """
    given = [each.kernels[name] for each, name in zip(samples, names, strict=True)]
    name = _described(names[0], given[0])
    trees = [each.tree(own) for each, own in zip(samples, names, strict=True)]
    try:
        found = generalise(trees, FEWEST, settles=settles)
    except NotGeneralError as error:
        kind = TooFewError if isinstance(error, FewError) else UnsupportedError
        raise kind(f"{name} is not the same for all sizes ({error}): give a single shape") from None
    params = found.func.params[1:] if found.extents else ()
    for param, is_weight in zip(params, weights, strict=bool(params)):
        if is_weight and not _is_fixed(param):
            raise UnsupportedError(
                f"weights of {name} depend on the network's size: give a single shape"
            )
    table = ValueTable(
        _sizes_of([samples[number] for number in found.alike]), entries, _sizes_of(samples)
    )
    texts = [str(given[number].attrs.get(ATTRIBUTE, "[]")) for number in found.alike]
    noted = [from_text(text) for text in texts]
    known = _known_sizes(table, noted)
    if known is not None:
        compared = {each.sizes for each in samples}
        choices = telling_sizes(noted, found.extents, known, entries, [*compared, *further])
        left = [each - compared for each in choices if len(each & compared) < TRIES]
        if any(left):
            raise TooFewError(f"{name} needs more sizes to find its formulas", left)
    apart.update(each.sizes for at, each in enumerate(samples) if at not in found.alike)
    if not found.extents:
        return SizedKernel(func=found.func, typical=names[0]), entries
    formulas = {} if known is None else noted_formulas(noted)
    terms = terms_of(table, found.extents, formulas, known or {})
    if terms is None:
        raise UnsupportedError(f"no formula was found for an extent of {name}: give a single shape")
    return SizedKernel(func=found.func, typical=names[0], extents=tuple(terms)), tuple(
        table.entries
    )


def _known_sizes(
    table: ValueTable, noted: Sequence[Mapping[Formula, int]]
) -> dict[str, Term] | None:
    """Return the terms of the sizes that a kernel's formulas name; None if one has none."""
    found = {
        size: table.find([each[size] for each in noted])
        for size in noted[0]
        if isinstance(size, str)
    }
    known = {size: term for size, term in found.items() if term is not None}
    return known if len(known) == len(found) else None
