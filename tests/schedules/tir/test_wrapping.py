"""Sums and products beyond 32 bits wrap, whatever operation follows them."""

import numpy as np
from kernel_harness import run
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import build_kernel, span
from neocpu.schedules.tir.llvm_text import Wrapping, wrapping_arithmetic

LANES = 8


def computed(values, emit):
    """Return a kernel's result of vectors ``values``."""

    def body(*buffers):
        with wrapping_arithmetic(LANES):
            vectors = [Wrapping(buffer[span(0, LANES)]) for buffer in buffers[:-1]]
            T.buffer_store(buffers[-1], emit(*vectors), [span(0, LANES)])

    names = [*(f"x{i}" for i in range(len(values))), "y"]
    func = build_kernel([(name, (LANES,), "int32") for name in names], body)
    return run(func, [np.full(LANES, value, np.int32) for value in values], (LANES,), "int32")


def test_a_shift_does_not_undo_an_overflow():
    """LLVM would undo the product if products were promised not to overflow."""

    def emit(x):
        return tirx.shift_right((x * 4).value, T.broadcast(tirx.const(2, "int32"), LANES))

    assert np.all(computed([(1 << 29) + 5], emit) == 5 - (1 << 29))
    assert np.all(computed([1 << 30], emit) == 0)


def test_sums_and_differences_are_modulo_2_to_the_32():
    most, least = (1 << 31) - 1, -1 << 31
    assert np.all(computed([most, 1], lambda x, y: (x + y).value) == least)
    assert np.all(computed([least, 1], lambda x, y: (x - y).value) == most)


def test_factors_may_be_of_32_bits():
    factor = pow(225, -1, 1 << 32)
    assert factor >= 1 << 31
    assert np.all(computed([225 * 1234567], lambda x: (x * factor).value) == 1234567)
