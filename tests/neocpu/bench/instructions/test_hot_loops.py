"""Inner loops in what was executed, by hand-written code whose loops are known."""

import needs
import pytest

from neocpu.bench.instructions.hot_loops import (
    Loop,
    disassemble,
    hottest,
    innermost_loops,
    multiply_adds,
)
from neocpu.bench.instructions.instruction_count import Executed


def program(*lines, start=0x1000):
    """Executed instructions and their texts; a line is a text and how often it was executed."""
    texts = {word: text for word, (text, _) in enumerate(lines)}
    executed = [
        Executed(start + 4 * word, word, times) for word, (_, times) in enumerate(lines) if times
    ]
    return executed, texts


@pytest.mark.parametrize(
    ("text", "vectors"),
    [
        ("fmla v0.4s, v1.4s, v2.s[1]", 1),
        ("fmls v31.4s, v1.4s, v2.4s", 1),
        ("fmla v0.2s, v1.2s, v2.2s", 0.5),
        ("fmadd s0, s1, s2, s3", 0.25),
        ("fnmsub s0, s1, s2, s3", 0.25),
        ("fmla v0.2d, v1.2d, v2.2d", 0),
        ("fmla v0.8h, v1.8h, v2.8h", 0),
        ("fmul v0.4s, v1.4s, v2.4s", 0),
        ("fmadd d0, d1, d2, d3", 0),
        ("ldr q0, [x0]", 0),
    ],
)
def test_multiply_adds_count_in_whole_vectors_of_float32(text, vectors):
    assert multiply_adds(text) == vectors


def test_only_loops_without_loops_inside_are_found():
    executed, texts = program(
        ("mov x0, x1", 10),  # the outer loop's
        ("fmla v0.4s, v1.4s, v2.4s", 100),
        ("subs x2, x2, #1", 100),
        ("b.ne #-8", 100),
        ("cbnz x3, #-16", 10),
        ("ret", 1),
    )
    (loop,) = innermost_loops(executed, texts)
    assert loop.body == ("fmla v0.4s, v1.4s, v2.4s", "subs x2, x2, #1", "b.ne #-8")
    assert (loop.iterations, loop.work) == (100, 100)


def test_branches_ahead_and_calls_make_no_loop():
    executed, texts = program(
        ("b.ne #8", 5), ("fmla v0.4s, v1.4s, v2.4s", 5), ("bl #-400", 5), ("b #4", 5)
    )
    assert innermost_loops(executed, texts) == ()


@pytest.mark.parametrize("branch", ["b #-8", "tbz w0, #3, #-8", "cbz x1, #-8", "b.hi #-8"])
def test_every_branch_back_ends_a_loop(branch):
    executed, texts = program(
        ("ldr q0, [x0], #16", 7), ("fmla v0.4s, v1.4s, v0.4s", 7), (branch, 7)
    )
    assert [loop.iterations for loop in innermost_loops(executed, texts)] == [7]


def test_a_rare_way_back_over_code_that_runs_often_is_no_loop():
    executed, texts = program(
        ("fmla v0.4s, v1.4s, v2.4s", 1000), ("b.ne #400", 1000), ("cbz x0, #-8", 72)
    )
    assert innermost_loops(executed, texts) == ()


def test_what_most_iterations_skip_is_not_modelled_but_its_work_counts():
    executed, texts = program(
        ("fmla v0.4s, v1.4s, v2.4s", 100),
        ("b.eq #8", 100),
        ("fmla v3.4s, v1.4s, v2.4s", 10),
        ("cbnz x0, #-12", 100),
    )
    (loop,) = innermost_loops(executed, texts)
    assert len(loop.body) == 3
    assert loop.work == 110


def test_a_loop_with_an_unknown_instruction_is_left_out():
    executed, texts = program(("mystery", 9), ("fmla v0.4s, v1.4s, v2.4s", 9), ("b.ne #-8", 9))
    assert innermost_loops(executed, {word: texts[word] for word in (1, 2)}) == ()


def test_the_hottest_loops_are_the_fewest_that_do_the_share():
    loops = [Loop(("a",), 1, 5.0), Loop(("b",), 1, 60.0), Loop(("c",), 1, 30.0), Loop((), 9, 0.0)]
    assert [loop.work for loop in hottest(loops, 100.0, 0.9)] == [60.0, 30.0]
    assert [loop.work for loop in hottest(loops, 100.0, 0.5)] == [60.0]
    assert [loop.work for loop in hottest(loops, 100.0, 0.99)] == [60.0, 30.0, 5.0]


@needs.programs("llvm-mc")
def test_machine_code_becomes_llvms_text():
    words = [0x4FA21020, 0x3DC00044, 0xF1000400, 0x54FFFF81, 0xFFFFFFFF, 0x4FA21020]
    assert disassemble(words) == {
        0x4FA21020: "fmla v0.4s, v1.4s, v2.s[1]",
        0x3DC00044: "ldr q4, [x2]",
        0xF1000400: "subs x0, x0, #1",
        0x54FFFF81: "b.ne #-16",
    }
