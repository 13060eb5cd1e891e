"""Machine code compares equal at any address, and different if one constant differs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import needs
import pytest

from tests.object_code.functions import changes, functions

SOURCE = """
const double table[] = {1.5, 2.5, FACTOR};
static double FIRST(double x, int i) { return x * table[i & 1] + 0.75; }
double outer(double x, int n) {
    for (int i = 0; i < n; i++) x = FIRST(x, i) STEP;
    return x;
}
"""
pytestmark = needs.programs("gcc", "objdump")

RIGHT = {"FACTOR": "3.5", "FIRST": "inner", "STEP": "+ 1.0"}


def compiled(folder: Path, before: str = "", **changed: str) -> dict[str, str]:
    source, library = folder / "code.c", folder / "code.so"
    source.write_text(before + SOURCE)
    words = [f"-D{name}={value}" for name, value in {**RIGHT, **changed}.items()]
    flags = ["-O1", "-fno-inline", "-fno-toplevel-reorder", "-shared", "-fPIC"]
    command = ["gcc", *flags, *words, "-o", library, source]
    subprocess.run(command, check=True)
    return functions(library)


def test_the_virtual_machines_program_is_no_constant(tmp_path):
    program = "const char __tvm_ffi__library_bin[] = {PROGRAM};"
    short, long = (
        compiled(tmp_path, program.replace("PROGRAM", text))
        for text in ("1, 2, 3", "4, 5, 6, 7, 8")
    )
    assert changes(short, long) == ""


def test_padding_between_functions_does_not_matter(tmp_path):
    padded = compiled(tmp_path, "__attribute__((aligned(64))) int one(int x) { return x; }")
    other = compiled(tmp_path, "__attribute__((aligned(64))) int one(int x) { return x + 77; }")
    assert changes(padded, other) == "changed: one"


def test_the_address_of_a_function_does_not_matter(tmp_path):
    moved = compiled(tmp_path, "int one(int x) { return x * 3 + 7; }")
    assert changes(compiled(tmp_path), moved) == "new: one"


@needs.machine("x86_64")
def test_the_position_of_nameless_code_does_not_matter(tmp_path):
    one, two = "int one(int x) { return x + 3; }", "int two(int x) { return x * 5; }"
    nameless = '__asm__(".text; mov $5, %eax; ret");'
    first = compiled(tmp_path, one + nameless + two)
    assert changes(first, compiled(tmp_path, one + two + nameless)) == ""
    other = compiled(tmp_path, one + two + nameless.replace("$5", "$6"))
    assert re.fullmatch(r"gone: nameless-\w{8}; new: nameless-\w{8}", changes(first, other))


@needs.machine("x86_64")
def test_a_jump_of_nameless_code_that_goes_elsewhere_is_noticed(tmp_path):
    code = 'int one(int x) { return x; } __asm__(".text; jne 1f; A inc %eax; B inc %eax; ret");'
    near, far = (code.replace(label, "1:") for label in "AB")
    first, other = (
        compiled(tmp_path, each.replace("A ", "").replace("B ", "")) for each in (near, far)
    )
    assert "nameless" in changes(first, other)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"FACTOR": "4.5"}, "changed: (constants)"),
        ({"STEP": "- 1.0"}, "changed: outer"),
        ({"FIRST": "other"}, "gone: inner; new: other; changed: outer"),
    ],
)
def test_changed_functions_are_named(tmp_path, changed, said):
    assert changes(compiled(tmp_path), compiled(tmp_path, **changed)) == said
