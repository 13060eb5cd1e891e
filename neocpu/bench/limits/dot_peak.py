"""The measured peak of instructions for 8-bit convolutions in vectors on this machine.

The template of these convolutions emits the same sequence. Here its operands lie in the first-level
cache, and register tiles of several shapes are tried: the best one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.bench.limits.kernel_runner import KernelRunner, TimedKernel
from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
)
from neocpu.schedules.tir.builder import build_kernel, span
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import CpuTarget

SAMPLES: Final = 30  # samples of each tile, which take turns
DEPTH: Final = 64  # steps with different operands: some KB, which fit any first-level cache
ROUNDS: Final = 1 << 10  # passes over these steps in a call, which take about a millisecond
VECTORS: Final = (1, 2, 3)  # vectors of sums for each pixel of a tile


@dataclass(frozen=True, slots=True)
class DotSequence:
    """A sequence of instructions that adds products of 8-bit integers to sums."""

    numerics: Numerics  # element types, and the range of weights
    groups: int  # groups of products that are first added up in 16 bits; 1 for a single instruction

    def unit(self, target: CpuTarget) -> DotUnit:
        """Return the instructions of a CPU. Raises UnsupportedError: the CPU has none."""
        return target.dot_unit(self.numerics).adding(self.groups)

    def name(self, target: CpuTarget) -> str:
        """Return its name in tables: ``vpdpbusd``, ``pairs``, ``x2``, ``x4``, ``widened``…"""
        unit = self.unit(target)
        if unit.intrinsic:
            return next(p for p in reversed(unit.intrinsic.split(".")) if not p.isdigit())
        if not unit.int16_sums:
            return "widened"
        return "pairs" if self.groups == 1 else f"x{self.groups}"

    def peak(self, runner: KernelRunner) -> float:
        """Return the multiply-accumulates per second of the best register tile."""
        return dot_peak(runner, self)

    def to_json(self) -> JsonObject:
        return {**self.numerics.to_json(), "groups": self.groups}

    @classmethod
    def from_json(cls, data: JsonObject) -> DotSequence:
        fields = dict(data)
        groups = int(fields.pop("groups"))
        return cls(Numerics.take_from(fields), groups)


def dot_peak(runner: KernelRunner, sequence: DotSequence, samples: int = SAMPLES) -> float:
    """Return the multiply-accumulates per second of the best register tile."""
    unit = sequence.unit(runner.target)
    found = [
        (_macs(unit, sequence.groups, tile, runner.threads), _built(runner, sequence, tile))
        for tile in tiles(unit)
    ]
    for _ in range(samples):
        for _, kernel in found:
            kernel.sample()
    return max(macs / kernel.best for macs, kernel in found)


def tiles(unit: DotUnit) -> Iterator[tuple[int, int]]:
    """Yield tiles (pixels and vectors) that about fill the registers."""
    for vectors in VECTORS:
        left = unit.registers - unit.operand_vectors * (vectors + 1)
        most = max(1, left // vectors)
        yield from ((rows, vectors) for rows in range(max(1, most - 2), most + 2))


def dot_kernel(
    unit: DotUnit, sequence: DotSequence, tile: tuple[int, int], threads: int, rounds: int = ROUNDS
) -> Any:
    """Build a kernel that only repeats a sequence on a register tile.

    ::

        for task in parallel(threads):
            sums[0 : rows, 0 : vectors] = 0                         # vectors, in registers
            for _ in range(rounds), step in range(DEPTH):
                for r, v in unrolled(rows, vectors):
                    sums[r, v] += data[step, r] * weights[step, v]  # all groups of the step
            output[task] = sums
    """
    (rows, vectors), groups = tile, sequence.groups
    lanes, width = unit.lanes, unit.lanes * unit.group
    numerics = sequence.numerics
    every = span(0, lanes)

    def step(sums: Any, data: Any, weights: Any, k: Any) -> None:
        taps = [
            load_weights([weights[k, v, g, span(0, width)] for g in range(groups)], unit)
            for v in range(vectors)
        ]
        for r in range(rows):
            words = [
                tirx.reinterpret("int32", data[k, r, span(g * unit.group, unit.group)])
                for g in range(groups)
            ]
            pixels = load_data(words, numerics.data, unit)
            for v, tap in enumerate(taps):
                total = add_products(sums[r, v, every], pixels, tap, unit)
                T.buffer_store(sums, total, [r, v, every])

    def body(data: Any, weights: Any, output: Any) -> None:
        with T.parallel(threads) as task:
            sums = T.alloc_buffer((rows, vectors, lanes), numerics.sum, scope="local", layout=None)
            zero = T.broadcast(tirx.const(0, numerics.sum), lanes)
            for r, v in product(range(rows), range(vectors)):
                T.buffer_store(sums, zero, [r, v, every])
            with T.serial(rounds), T.serial(DEPTH) as k:
                step(sums, data, weights, k)
            for r, v in product(range(rows), range(vectors)):
                T.buffer_store(output, sums[r, v, every], [task, r, v, every])

    return build_kernel(
        [
            ("data", (DEPTH, rows, groups * unit.group), numerics.data),
            ("weights", (DEPTH, vectors, groups, width), numerics.weights),
            ("output", (threads, rows, vectors, lanes), numerics.sum),
        ],
        body,
    )


def _built(runner: KernelRunner, sequence: DotSequence, tile: tuple[int, int]) -> TimedKernel:
    unit, (rows, vectors) = sequence.unit(runner.target), tile
    numerics, groups = sequence.numerics, sequence.groups
    arrays = [
        np.ones((DEPTH, rows, groups * unit.group), numerics.data),
        np.ones((DEPTH, vectors, groups, unit.lanes * unit.group), numerics.weights),
        np.zeros((runner.threads, rows, vectors, unit.lanes), numerics.sum),
    ]
    return runner.build(dot_kernel(unit, sequence, tile, runner.threads), arrays)


def _macs(unit: DotUnit, groups: int, tile: tuple[int, int], threads: int) -> int:
    rows, vectors = tile
    return threads * ROUNDS * DEPTH * rows * vectors * groups * unit.macs
