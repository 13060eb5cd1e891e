"""Places of tensors at other sizes than the typical ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from neocpu.building.sized.memory import place_blocks
from neocpu.building.sized.program import SizedProgram, SizedTensor
from neocpu.foundation.size_formulas import Entry, Term, value_of, values_of
from neocpu.lowering.memory.arena import ALIGN

H, W = Term(0, is_entry=True), Term(1, is_entry=True)


def some_program(rng):
    """Return a program of random calls, whose tensors have extents of half, equal, double size."""
    entries = [
        Entry("//", H, Term(2)),
        Entry("//", W, Term(2)),
        Entry("*", H, Term(2)),
    ]
    extents = [H, W, *(Term(2 + number, is_entry=True) for number in range(3)), Term(7)]
    activations, calls = [], []
    for number in range(12):
        shape = tuple(rng.choice(extents) for _ in range(3))
        activations.append(SizedTensor(dtype="float32", shape=shape, block=number, offset=Term(0)))
        read = [2 + rng.randrange(number) for _ in range(2)] if number else [0]
        calls.append(("kernel", (*read, 2 + number)))
    # Two tensors of one block, of which the second lies behind the first.
    end = Term(5, is_entry=True)
    entries.append(Entry("*", H, Term(64)))
    part = SizedTensor(dtype="int8", shape=(H, Term(64)), block=12, offset=Term(0))
    other = SizedTensor(dtype="int8", shape=(H, Term(64)), block=12, offset=end)
    calls.append(("kernel", (13, 14, 15)))
    program = SizedProgram(
        entries=tuple(entries),
        kernels={},
        calls=tuple(calls),
        results=(15,),
        inputs=(SizedTensor(dtype="float32", shape=(H, W)),),
        outputs=(),
        constants=(),
        activations=(*activations, part, other),
        apart=(),
    )
    return program


def spans_of(program):
    """Return the first and the last call that use each activation's block."""
    used = {}
    for call, (_, operands) in enumerate([*program.calls, ("", program.results)]):
        for operand in operands:
            if operand >= 2:
                used.setdefault(program.activations[operand - 2].block, []).append(call)
    return {block: (min(calls), max(calls)) for block, calls in used.items()}


@pytest.mark.parametrize("seed", range(10))
def test_blocks_in_use_at_once_do_not_overlap_at_any_size(seed):
    rng = random.Random(seed)
    program = some_program(rng)
    memory = place_blocks(program, (32, 48), weights=1)
    spans = spans_of(program)
    for sizes in [(32, 48), (1, 1), (2, 500), (500, 2), (97, 131)]:
        values = values_of(memory.entries, sizes)
        places = []
        for tensor, offset in zip(program.activations, memory.offsets, strict=True):
            shape = [value_of(term, values) for term in tensor.shape]
            size = int(np.prod(shape)) * np.dtype(tensor.dtype).itemsize
            start = value_of(offset, values)
            places.append((tensor.block, start, start + size))
            assert start + size <= value_of(memory.arena_bytes, values)
        for block, start, end in places:
            for other, begin, last in places:
                (first, until), (since, to) = spans[block], spans[other]
                if other != block and first <= to and since <= until:
                    assert end <= begin or last <= start, (sizes, block, other)
    values = values_of(memory.entries, (32, 48))
    blocks = {tensor.block for tensor in program.activations}
    starts = dict(zip((t.block for t in program.activations), memory.offsets, strict=True))
    assert len(starts) == len(blocks)
    assert value_of(starts[0], values) % ALIGN == 0
