"""The emulated CPU itself, by programs of a few instructions."""

import subprocess

import emulated_cpu
import needs
import numpy as np
import pytest
from emulated_cpu import ICE_LAKE, PAGE, SAPPHIRE_RAPIDS, EmulationError, Program, Region

pytestmark = [
    needs.machine("x86_64"),
    needs.package("bochscpu", "bochscpu-python"),
    needs.programs("cc", "objcopy"),
]

CODE, DATA, STACK = 0x400000, 0x500000, 0x600000


def run(folder, assembly, data=b"", cpu=SAPPHIRE_RAPIDS, is_writable=True):
    """Return a page of data after a program that finds its address in RDI."""
    source, binary = folder / "code.s", folder / "code.bin"
    source.write_text(assembly)
    subprocess.run(["cc", "-c", source, "-o", folder / "code.o"], check=True)
    subprocess.run(["objcopy", "-O", "binary", folder / "code.o", binary], check=True)
    code = binary.read_bytes()
    page = Region(DATA, data + bytes(PAGE - len(data)), is_writable)
    memory = (Region(CODE, code + bytes(-len(code) % PAGE), False), page)
    program = Program(cpu, memory, CODE, STACK, (DATA,))
    (left,) = emulated_cpu.execute(program, [page], folder)
    return left


def test_products_of_bfloat16_in_pairs(tmp_path):
    """VDPBF16PS."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((2, 32), np.float32).view(np.uint32) & 0xFFFF0000
    sums = rng.standard_normal(16, np.float32)
    data = (factors >> 16).astype(np.uint16).tobytes() + sums.tobytes()
    multiply = """
        vmovups (%rdi), %zmm1
        vmovups 128(%rdi), %zmm0
        {disp32} vdpbf16ps 64(%rdi), %zmm1, %zmm0
        vmovups %zmm0, 128(%rdi)
        xor %eax, %eax
        hlt
    """
    got = np.frombuffer(run(tmp_path, multiply, data)[128:192], np.float32)
    products = factors.view(np.float32).astype(np.float64).prod(axis=0)
    np.testing.assert_allclose(got, sums + products.reshape(16, 2).sum(axis=1), atol=1e-6)
    with pytest.raises(EmulationError, match=r"lacks \(6\) before 0x4000"):
        run(tmp_path, multiply, data, ICE_LAKE)


def test_the_emulated_cpu_returns_a_programs_result(tmp_path):
    with pytest.raises(EmulationError, match="the program returned 7"):
        run(tmp_path, "mov $7, %eax\nhlt\n")


def test_memory_that_is_not_there_or_only_read(tmp_path):
    read = "mov {}(%rdi), %eax\nxor %eax, %eax\nhlt\n"
    run(tmp_path, read.format(4092), is_writable=False)
    with pytest.raises(
        EmulationError, match=r"a page fault \(14\) before 0x400006, address 0x501000"
    ):
        run(tmp_path, read.format(4096))
    with pytest.raises(
        EmulationError, match=r"a page fault \(14\) before 0x400003, address 0x500000"
    ):
        run(tmp_path, "movb $1, (%rdi)\nhlt\n", is_writable=False)
