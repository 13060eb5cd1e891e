"""The kernels that measure 8-bit instructions equal the template's code, and are exact."""

from __future__ import annotations

import re

import needs
import numpy as np
import pytest
import tvm

from neocpu.bench.limits.dot_peak import (
    DEPTH,
    DotSequence,
    dot_kernel,
    dot_peak,
    tiles,
)
from neocpu.bench.limits.instruction_peaks import measure_peaks, sequence_from_json
from neocpu.bench.limits.kernel_runner import KernelRunner
from neocpu.bench.limits.tile_peak import TileSequence, tile_kernel
from neocpu.foundation.errors import TargetError
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, Numerics
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target


def sequence(int16_sums=0, groups=1, data="uint8"):
    return DotSequence(
        Numerics(data=data, weights="int8", sum="int32", output="int32", int16_sums=int16_sums),
        groups,
    )


NAMES = [
    ("haswell", sequence(), "widened", {"vpmaddwd": 2}),
    ("haswell", sequence(2), "pairs", {"vpmaddubsw": 1, "vpmaddwd": 1}),
    ("haswell", sequence(4, 2), "x2", {"vpmaddubsw": 2, "vpmaddwd": 1}),
    ("haswell", sequence(8, 4), "x4", {"vpmaddubsw": 4, "vpmaddwd": 1}),
    ("cascadelake", sequence(), "vpdpbusd", {"vpdpbusd": 1}),
    ("alderlake", sequence(), "vpdpbusd", {"vpdpbusd": 1}),
    ("cortex-a76", sequence(data="int8"), "sdot", {"sdot": 1}),
]


INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="int32")
TILED = {
    TileSequence(BFLOAT16_PRODUCTS): ("tdpbf16ps", 4),
    TileSequence(BFLOAT16_PRODUCTS, parts=2): ("3 tdpbf16ps", 12),
    TileSequence(INTEGERS): ("tdpbusd", 4),
}


@pytest.mark.parametrize("found", TILED)
def test_a_step_has_four_products_of_tiles_for_each_of_a_value(found):
    target, (name, products) = parse_target("sapphirerapids"), TILED[found]
    assert found.name(target) == name
    kernel = tile_kernel(found.unit(target), found.parts, 1)
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    code = str(tvm.tirx.build(module, target.to_tvm(), pipeline=PIPELINE).inspect_source("asm"))
    count = len(re.findall(rf"\s{name.split()[-1]}\s", code))
    assert count > 0
    assert count % products == 0
    loads = len(re.findall(r"\stileloadd\s", code))
    assert loads == (count if found.parts == 1 else 2 * count // 3)


@needs.tiles
def test_peaks_of_tiles_are_numbers_of_this_machine():
    peaks = measure_peaks(str(host_target()), 1, tuple(TILED))
    assert all(peak > 1e10 for peak in peaks.values())


@pytest.mark.parametrize(("cpu", "found", "name", "counts"), NAMES)
def test_a_step_has_the_instructions_in_its_name(cpu, found, name, counts):
    target = parse_target(cpu)
    assert found.name(target) == name
    tile = (3, 2)
    kernel = dot_kernel(found.unit(target), found, tile, 1)
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    code = str(tvm.tirx.build(module, target.to_tvm(), pipeline=PIPELINE).inspect_source("asm"))
    times = {word: len(re.findall(rf"\s{word}\s", code)) for word in counts}
    unrolled = min(times.values()) // (6 * min(counts.values()))
    assert unrolled > 0
    assert times == {word: 6 * count * unrolled for word, count in counts.items()}


@needs.machine("x86_64")
@needs.instruction_set("avx2")
@pytest.mark.parametrize("found", [sequence(), sequence(2), sequence(4, 2), sequence(8, 4)])
def test_sums_are_of_all_products(found):
    target, tile, rounds = parse_target("haswell"), (3, 2), 5
    unit, rng = found.unit(target), np.random.default_rng(0)
    most = 16 if found.numerics.int16_sums else 127
    data = rng.integers(0, 256, (DEPTH, 3, 4 * found.groups)).astype(np.uint8)
    weights = rng.integers(-most, most + 1, (DEPTH, 2, found.groups, 32)).astype(np.int8)
    kernel = dot_kernel(unit, found, tile, 2, rounds)
    with KernelRunner(target, 2) as runner:
        timed = runner.build(kernel, [data, weights, np.zeros((2, *tile, 8), np.int32)])
        timed.sample(0.0)
        got = timed.arrays()[2]
    pixels = data.reshape(DEPTH, 3, found.groups, 1, 4).astype(np.int64)
    taps = weights.reshape(DEPTH, 2, found.groups, 8, 4).astype(np.int64)
    wanted = rounds * np.einsum("krgzi,kvgli->rvl", pixels, taps)
    np.testing.assert_array_equal(got, [wanted, wanted])


def test_tiles_fit_the_registers_or_nearly():
    unit = sequence(4, 2).unit(parse_target("haswell"))
    found = list(tiles(unit))
    assert {vectors for _, vectors in found} == {1, 2, 3}
    assert len(set(found)) == len(found)
    assert all(3 <= rows * vectors <= unit.registers for rows, vectors in found)


def test_a_sequence_goes_through_json():
    for _, found, _, _ in NAMES:
        assert sequence_from_json(found.to_json()) == found
    for found in TILED:
        assert sequence_from_json(found.to_json()) == found


@needs.machine("x86_64")
@needs.instruction_set("avx2")
def test_a_peak_is_a_number_of_this_machine():
    found = sequence(2)
    with KernelRunner(parse_target("haswell"), 1) as runner:
        assert dot_peak(runner, found, samples=1) > 1e8


def test_peaks_that_cannot_run_here_are_refused():
    other = "neoverse-v1" if host_target().machine == "x86_64" else "haswell"
    with pytest.raises(TargetError, match="cannot measure this machine's instructions"):
        measure_peaks(other, 1, [sequence(data="int8")])
    assert measure_peaks(other, 1, []) == {}
