"""Counting under QEMU, on a C program whose loop is known to the instruction."""

import subprocess

import needs
import pytest

from neocpu.bench.instructions.arm_guest import MARK
from neocpu.bench.instructions.instruction_count import (
    TOOLS,
    Executed,
    build_counter,
    count,
    parse_counts,
    require_tools,
)
from neocpu.foundation.errors import NeoCPUError, UsageError

CROSS = "aarch64-linux-gnu-gcc"
needs_qemu = needs.programs("qemu-aarch64", CROSS, "cc")
SOURCE = f"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {{
    long turns = 1000;
    if (count > 1)
        return atoi(arguments[1]);
    for (int warm_up = 0; warm_up < 77; warm_up++)
        __asm__ volatile("fmla v0.4s, v1.4s, v2.s[3]");
    syscall(SYS_getpgid, {MARK:#x});
    __asm__ volatile("1: fmla v0.4s, v1.4s, v2.s[1]\\n"
                     "fmla v3.4s, v1.4s, v2.s[2]\\n"
                     "subs %0, %0, #1\\n"
                     "b.ne 1b" : "+r"(turns) : : "v0", "v3", "cc");
    syscall(SYS_getpgid, {MARK:#x});
    puts("done");
    return 0;
}}
"""
FIRST, SECOND, WARM_UP = 0x4FA21020, 0x4F821823, 0x4FA21820


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counted")
    source = folder / "program.c"
    source.write_text(SOURCE)
    command = (CROSS, "-O1", "-static", "-o", folder / "program", source)
    subprocess.run(command, check=True)
    return folder / "program"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return build_counter(tmp_path_factory.mktemp("plugin"))


@needs_qemu
def test_instructions_between_the_marks_are_counted_exactly(program, plugin):
    counted = count([str(program)], plugin, "cortex-a72")
    assert counted.printed == "done\n"
    times = {each.word: each.times for each in counted.executed}
    assert times[FIRST] == times[SECOND] == 1000
    assert WARM_UP not in times
    # The loop, the way out of one system call and into the other.
    assert 4000 < sum(each.times for each in counted.executed) < 4100
    again = count([str(program)], plugin, "cortex-a72")
    assert again == counted


@needs_qemu
def test_a_program_that_fails_or_sets_no_marks_is_an_error(program, plugin):
    with pytest.raises(NeoCPUError, match="qemu-aarch64 failed: exit status 3"):
        count([str(program), "3"], plugin, "cortex-a72")
    with pytest.raises(NeoCPUError, match="without marking"):
        count([str(program), "0"], plugin, "cortex-a72")


def test_blocks_that_overlap_add_up():
    text = "4096 1 0000000a0000000b0000000c\n4100 9 0000000b0000000c\n8192 2 0000000a\n"
    assert parse_counts(text) == (
        Executed(4096, 0xA, 1),
        Executed(4100, 0xB, 10),
        Executed(4104, 0xC, 10),
        Executed(8192, 0xA, 2),
    )


def test_missing_commands_are_named_with_what_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"apt-get install .* qemu-user llvm gcc") as caught:
        require_tools()
    assert all(command in str(caught.value) for command in TOOLS)
