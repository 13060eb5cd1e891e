"""Outputs are computed in the caller's arrays where possible, with the same results."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from wheels.backend import CORE, compile_core

ARENA = 64


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of tensors in an arena.

    `tensors`: the offset of each tensor, and its bytes. `calls`: numbers of the tensors that each
    call reads, and of those that it writes. `returns`: the outputs' numbers. `guarded`: calls that
    may be skipped: the first, the one after the last, and the most repetitions.
    """

    tensors: tuple[tuple[int, int], ...]
    calls: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    returns: tuple[int, ...]
    guarded: tuple[tuple[int, int, int], ...] = ()


class Described(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("activations", "calls", "repeats", "outputs")),
        *((name, ctypes.c_void_p) for name in ("offsets", "sizes", "counts", "results")),
        *((name, ctypes.c_void_p) for name in ("tensors", "guarded", "returns")),
    )


@pytest.fixture(scope="module")
def find(tmp_path_factory):
    """Return a function for the moves of a program: output and offset, by tensor."""
    path = tmp_path_factory.mktemp("moves") / "libmoves.so"
    source = Path(__file__).with_name("output_moves.c")
    compile_core(path, ["cc", f"-iquote{CORE / 'src'}", str(source)])
    library = ctypes.CDLL(path)

    def moves(program):
        sizes = [
            [place for place, _ in program.tensors],
            [size for _, size in program.tensors],
            [len(reads + writes) for reads, writes in program.calls],
            [len(writes) for _, writes in program.calls],
        ]
        flat = [number for reads, writes in program.calls for number in reads + writes]
        arrays = [
            *(np.array(each, np.uint64) for each in sizes),
            np.array(flat, np.uint32),
            np.array(program.guarded, np.uint64).ravel(),
            np.array(program.returns, np.uint32),
        ]
        counts = map(len, (program.tensors, program.calls, program.guarded, program.returns))
        described = Described(*counts, *(array.ctypes.data for array in arrays))
        nothing = np.iinfo(np.uint64).max
        found = np.full((2, len(program.tensors)), nothing, np.uint64)
        count = library.find_moves(
            ctypes.byref(described), *(ctypes.c_void_p(row.ctypes.data) for row in found)
        )
        told = {
            number: (int(output), int(offset))
            for number, (output, offset) in enumerate(found.T)
            if output != nothing
        }
        assert len(told) == count
        return told

    return moves


WHOLE, VIEW, LOW, HIGH, BEFORE, APART, ACROSS = range(7)
TENSORS = ((16, 16), (16, 16), (16, 8), (24, 8), (16, 16), (40, 16), (28, 8))


def program_of(*calls, guarded=()):
    """Return a program of `TENSORS` that returns the whole tensor."""
    return Program(tensors=TENSORS, calls=calls, returns=(WHOLE,), guarded=guarded)


@pytest.mark.parametrize(
    ("program", "moved"),
    [
        (program_of(((), (WHOLE,))), {WHOLE}),
        (program_of(((), (VIEW,))), {WHOLE, VIEW}),
        (program_of(((), (LOW,)), ((), (HIGH,))), {WHOLE, LOW, HIGH}),
        (program_of(((), (HIGH,)), ((HIGH,), (LOW,))), {WHOLE, LOW, HIGH}),
        (program_of(((), (ACROSS,)), ((ACROSS,), (APART,)), ((APART,), (WHOLE,))), {WHOLE}),
        (program_of(((), (WHOLE,)), ((WHOLE,), (APART,))), {WHOLE}),
        # The place is nobody else's at any time: what had it before moves as well.
        (program_of(((), (BEFORE,)), ((BEFORE,), (APART,)), ((APART,), (WHOLE,))), {WHOLE, BEFORE}),
        # Half of it is never written, or was written where the other tensor lies as well.
        (program_of(((), (LOW,))), set()),
        (program_of(((), (LOW,)), ((), (ACROSS,)), ((), (HIGH,))), set()),
        (program_of(((), (WHOLE,)), ((), (ACROSS,)), ((WHOLE,), (WHOLE,))), set()),
        (program_of(((HIGH,), (LOW,)), ((), (HIGH,))), set()),
        # A run may leave a call out, or make later ones earlier.
        (program_of(((), (WHOLE,)), guarded=((0, 1, 1),)), set()),
        (program_of(((), (APART,)), ((), (WHOLE,)), guarded=((0, 1, 1),)), {WHOLE}),
        (program_of(((), (APART,)), ((), (WHOLE,)), guarded=((0, 1, 3),)), set()),
    ],
)
def test_what_moves(find, program, moved):
    touched = {number for reads, writes in program.calls for number in reads + writes} | {WHOLE}
    found = {number: place for number, place in find(program).items() if number in touched}
    assert found == {number: (0, TENSORS[number][0] - 16) for number in moved}


@pytest.mark.parametrize("returns", [(WHOLE, HIGH), (HIGH, WHOLE), (WHOLE, VIEW)])
def test_outputs_within_another_move_with_it(find, returns):
    program = Program(tensors=TENSORS, calls=(((), (WHOLE,)),), returns=returns)
    whole = returns.index(WHOLE)
    assert [find(program)[each] for each in (WHOLE, VIEW, HIGH)] == [
        (whole, 0),
        (whole, 0),
        (whole, 8),
    ]


def run(program, moves, data):
    """Return the outputs of a program whose calls write numbers that depend on all they read."""
    homes = [data.integers(0, 256, ARENA, np.uint8) for _ in range(len(program.returns) + 1)]

    def memory(number):
        begin, size = program.tensors[number]
        output, begin = moves.get(number, (-1, begin))
        return homes[output + 1][begin : begin + size]

    for place, (reads, writes) in enumerate(program.calls):
        read = [memory(number).tobytes() for number in reads]
        for number in writes:
            found = np.random.default_rng([place, number, *b"".join(read)])
            memory(number)[...] = found.integers(0, 256, program.tensors[number][1], np.uint8)
    return [memory(number).copy() for number in program.returns]


def random_program(data):
    """Return a program that reads and returns only tensors that were written."""
    starts = data.integers(0, ARENA // 4 - 3, 8) * 4
    sizes = data.integers(1, 4, 8) * 4
    tensors = tuple(zip(starts.tolist(), sizes.tolist(), strict=True))
    calls, written = [], np.zeros(ARENA, bool)

    def is_there(number):
        begin, size = tensors[number]
        return bool(written[begin : begin + size].all())

    for _ in range(data.integers(2, 7)):
        (result,) = map(int, data.choice(8, 1))
        begin, size = tensors[result]
        reads = tuple(
            int(number)
            for number in data.choice(8, 2, replace=False)
            if is_there(number) and not touch(tensors[number], tensors[result])
        )
        calls.append((reads, (result,)))
        written[begin : begin + size] = True
    there = [number for number in range(8) if is_there(number)]
    returns = tuple(map(int, data.permutation(there)[: data.integers(1, 3)]))
    return Program(tensors=tensors, calls=tuple(calls), returns=returns)


def touch(one, other):
    return one[0] < sum(other) and other[0] < sum(one)


def test_moves_change_nothing(find):
    moving = 0
    for seed in range(3000):
        program = random_program(np.random.default_rng(seed))
        moves = find(program)
        moving += bool(moves)
        here, there = (run(program, each, np.random.default_rng(0)) for each in ({}, moves))
        for one, other in zip(here, there, strict=True):
            np.testing.assert_array_equal(one, other, str(program))
    assert moving > 1000
