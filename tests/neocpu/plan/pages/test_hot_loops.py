"""Hot loops, found in the output of disassemblers."""

import re
from pathlib import Path

import needs
import pytest
from file_limits import files_up_to

from neocpu.foundation.errors import ArtifactError
from neocpu.plan.pages import hot_loops as room
from neocpu.plan.pages.hot_loops import MAX_LINES, hot_loop, hot_loops
from neocpu.runtime.artifact import ArtifactFile


def code(text):
    """Return addresses and instructions, one of four bytes a line."""
    return [(4 * i, line.strip()) for i, line in enumerate(text.strip().splitlines())]


def test_the_innermost_loop_with_the_most_multiply_adds():
    loop = hot_loop(
        code("""
            vxorps xmm0,xmm0,xmm0
            vmovups ymm1,YMMWORD PTR [rax]
            vaddps ymm1,ymm1,ymm1
            jne 4 <f+0x4>
            vbroadcastss ymm1,DWORD PTR [rax]
            {vex} vpdpbusd ymm2,ymm1,ymm3
            vfmadd231ps ymm2,ymm1,YMMWORD PTR [rbx]
            je 30 <f+0x30>
            cmp rax,rbx
            jb 18 <f+0x18>
            jne 10 <f+0x10>
            vmulps ymm1,ymm1,ymm1
            jmp 0 <f>
            ret
        """)
    )
    # It holds a smaller one, which is the innermost.
    assert (loop.instructions, loop.multiply_adds, loop.multiplying) == (4, 1, (0,))
    assert loop.lines == (
        "vfmadd231ps ymm2,ymm1,YMMWORD PTR [rbx]",
        "je out",
        "cmp rax,rbx",
        "jb line 1",
    )


def test_of_loops_that_multiply_nothing_the_longest():
    text = "mov rax,rbx\nmov rbx,rcx\njne 0 <f>\nmov rax,rbx\njne c <f+0xc>\nret"
    loop = hot_loop(code(text))
    assert (loop.instructions, loop.multiply_adds) == (3, 0)
    assert hot_loop(code("mov rax,rbx\njmp 100 <g>\nret")) is None
    assert hot_loop([]) is None


def test_aarch64():
    loop = hot_loop(
        code("""
            fmla v0.4s, v1.4s, v2.s[0]
            fmul v3.4s, v1.4s, v2.4s
            sdot v0.4s, v1.16b, v2.4b[1]
            b.ne 0x0 <f>
            cbnz x1, 0x0 <f>
        """)
    )
    assert (loop.multiply_adds, loop.lines[-1]) == (2, "b.ne line 1")


def test_long_ones_are_cut():
    text = "\n".join(["vfmadd213ps ymm1,ymm2,ymm3"] * 100) + "\njne 0 <f>"
    loop = hot_loop(code(text))
    assert (loop.instructions, loop.multiply_adds) == (101, 100)
    assert len(loop.lines) == len(loop.multiplying) == MAX_LINES


@needs.programs("objdump")
def test_of_an_artifact(small, linear):
    for toy in (small, linear):
        (variant,) = ArtifactFile(toy.path).variants
        found = hot_loops(Path(toy.path), variant)
        assert found.keys() <= {name for name, _ in toy.header.calls}
        assert all(loop.lines for loop in found.values())
        whole = [loop for loop in found.values() if loop.instructions == len(loop.lines)]
        assert all(re.search(r" line 1$", loop.lines[-1]) for loop in whole)
    assert any(loop.multiply_adds for loop in found.values())


@pytest.mark.parametrize("tool", ["false", "cat", "no-such-program"])
def test_without_a_tool(tool, linear, monkeypatch):
    monkeypatch.setattr(room, "TOOLS", (tool,))
    (variant,) = ArtifactFile(linear.path).variants
    assert hot_loops(Path(linear.path), variant) == {}


def test_a_full_temporary_folder_is_named(linear):
    (variant,) = ArtifactFile(linear.path).variants
    with files_up_to(100), pytest.raises(ArtifactError, match=r"File too large.*another TMPDIR"):
        hot_loops(Path(linear.path), variant)
