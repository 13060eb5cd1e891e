"""Every multiplying instruction that LLVM emits agrees with its description bit for bit."""

from dataclasses import replace
from itertools import product

import emulated_kernel
import needs
import numpy as np
import pytest
from test_emulated_kernels import CPUS, on
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
)
from neocpu.schedules.isa.catalogue import INSTRUCTIONS
from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.tir.bfloat16 import add_dot, dot_products
from neocpu.schedules.tir.builder import build_kernel, span
from neocpu.schedules.tir.llvm_text import wrapping_arithmetic
from neocpu.schedules.vocabulary.numerics import Numerics

TYPES = sorted({(each.data, each.weights, each.sum) for each in INSTRUCTIONS if each.group > 1})
#: LLVM knows it, and no emulator has it.
NOWHERE = {"vpdpbssd of 64 bytes"}


def label(instruction: Instruction) -> str:
    wide = instruction.name == "vpdpbssd" and "avx512" in instruction.isas
    return f"{instruction.name} of 64 bytes" if wide else instruction.name


def units():
    """Yield a CPU that can be executed, and one of its instructions, each of these once."""
    seen = set()
    for (cpu, target), types in product(CPUS.items(), TYPES):
        data, weights, sums = types
        numerics = Numerics(data=data, weights=weights, sum=sums, output=sums)
        for unit in target.units(numerics):
            made = unit.instruction
            small = replace(numerics, int16_sums=2) if unit.is_sequence else None
            key = (made.name, made.data, made.weights, tuple(made.isas), target.isa)
            if key not in seen and not made.in_tiles:
                seen.add(key)
                yield cpu, target, small or numerics, made


CASES = list(units())


def test_every_instruction_is_executed_somewhere():
    executed = {label(made) for *_, made in CASES}
    missing = {label(each) for each in INSTRUCTIONS if each.group > 1 and not each.in_tiles}
    assert missing - executed == NOWHERE


def random(dtype: str, size: int, rng) -> np.ndarray:
    """Return numbers of every magnitude, of bfloat16 their bits, without infinities."""
    if dtype == "bfloat16":
        wide = rng.standard_normal(size) * 2.0 ** rng.integers(-70, 60, size)
        wide[::7] = 1e-39  # denormal
        return (wide.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, size, dtype, endpoint=True)


def kernel(unit, numerics):
    """Return a function that adds the products of one instruction to sums."""
    made = unit.instruction
    stored = {"bfloat16": "uint16"}
    data, weights = (stored.get(each, each) for each in (made.data, made.weights))
    count = (made.columns or unit.lanes) * made.group
    is_float, every = made.sum == "float32", span(0, unit.lanes)

    def one(x, y, z, output):
        if made.rows > 1:
            words = [T.Bind(_words(each[span(0, count)], is_float)) for each in (x, y)]
            if is_float:
                total = add_dot(z[every], *words)
            else:
                total = tirx.call_llvm_pure_intrin(
                    z[every].ty.dtype, unit.intrinsic, z[every], *words
                )
        else:
            word = tirx.reinterpret("int32", x[span(0, made.group)])
            taps = load_weights([y[span(0, count)]], unit)
            total = add_products(z[every], load_data([word], numerics.data, unit), taps, unit)
        T.buffer_store(output, total, [every])

    def body(*buffers):
        if is_float and unit.intrinsic:
            with dot_products(unit.intrinsic, unit.lanes):
                one(*buffers)
        else:
            with wrapping_arithmetic(unit.lanes):
                one(*buffers)

    rows = count if made.rows > 1 else made.group
    return build_kernel(
        [
            *(("x", (rows,), data), ("y", (count,), weights)),
            *(("z", (unit.lanes,), made.sum), ("output", (unit.lanes,), made.sum)),
        ],
        body,
    )


def _words(vector, is_float):
    return tirx.reinterpret("int32x4", vector) if is_float else vector


@pytest.mark.parametrize(
    ("cpu", "target", "numerics", "made"),
    [on(cpu, *rest) for cpu, *rest in CASES],
    ids=lambda value: label(value) if isinstance(value, Instruction) else None,
)
def test_every_instruction_agrees_with_its_description(cpu, target, numerics, made, tmp_path):
    (unit,) = (each for each in target.units(numerics) if each.instruction == made)
    function = kernel(unit, numerics)
    rng = np.random.default_rng(0)
    for _ in range(4 if needs.EVERYTHING else 2):
        rows, columns = made.rows, made.columns or unit.lanes
        x = random(made.data, rows * made.group, rng)
        y = random(made.weights, columns * made.group, rng)
        z = random("int32", rows * columns, rng)
        if made.sum == "float32":
            z = rng.standard_normal(rows * columns).astype(np.float32) * np.float32(2.0**-20)
        given = x.astype(np.int16) - made.offset if made.offset else x
        if unit.is_sequence:
            y = (y // 2).astype(y.dtype)  # small enough for `int16_sums`
        want = made.semantics(
            given.reshape(rows, -1), y.reshape(columns, -1), z.reshape(rows, columns)
        )
        output = np.zeros_like(z)
        (got,) = emulated_kernel.run(function, target, [x, y, z], [output], tmp_path)
        assert got.tobytes() == want.reshape(-1).tobytes()
