"""The measured peak of products in tile registers on this machine, with operands in L1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from tvm.tirx.script.builder import ir as T

from neocpu.bench.limits.kernel_runner import KernelRunner
from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_ROWS
from neocpu.schedules.tir import tiles
from neocpu.schedules.tir.builder import build_kernel
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import CpuTarget

SAMPLES: Final = 30
DEPTH: Final = 4  # steps with different operands, which fit any first-level cache
ROUNDS: Final = 1 << 11  # passes over these steps in a call, which take about a millisecond
SIDE: Final = 2  # tiles of sums, down and across: the form that is fastest in most layers


@dataclass(frozen=True, slots=True)
class TileSequence:
    """Products of tiles, of values in so many parts."""

    numerics: Numerics  # the element types of tiles
    parts: int = 1

    def unit(self, target: CpuTarget) -> DotUnit:
        found = target.find_matrix_unit(self.numerics)
        assert found is not None, target
        return found

    def name(self, target: CpuTarget) -> str:
        """Return its name in tables: ``tdpbf16ps``, ``3 tdpbf16ps``…"""
        products = tiles.PRODUCTS[self.parts]
        name = self.unit(target).instruction.name
        return name if products == 1 else f"{products} {name}"

    def peak(self, runner: KernelRunner) -> float:
        """Return the multiply-accumulates of values per second."""
        unit = self.unit(runner.target)
        size = (SIDE, DEPTH * self.parts, TILE_ROWS, ROW_BYTES)
        arrays = [np.zeros(size, np.uint8), np.zeros(size, np.uint8)]
        output = np.zeros((runner.threads, SIDE * SIDE, TILE_ROWS, ROW_BYTES), np.uint8)
        kernel = runner.build(tile_kernel(unit, self.parts, runner.threads), [*arrays, output])
        for _ in range(SAMPLES):
            kernel.sample()
        return runner.threads * ROUNDS * DEPTH * SIDE * SIDE * unit.macs / kernel.best

    def to_json(self) -> JsonObject:
        return {**self.numerics.to_json(), "parts": self.parts}

    @classmethod
    def from_json(cls, data: JsonObject) -> TileSequence:
        fields = dict(data)
        parts = int(fields.pop("parts"))
        return cls(Numerics.take_from(fields), parts)


def tile_kernel(unit: DotUnit, parts: int, threads: int, rounds: int = ROUNDS) -> Any:
    """Build a kernel that only repeats the products of two rows and two columns of tiles.

    ::

        for task in parallel(threads):
            sums[0..3] = 0
            for _ in range(rounds), step in range(DEPTH):
                load two tiles of each factor;  add their products to the sums
            output[task] = sums
    """
    name = unit.instruction.name
    grid = tiles.Grid(SIDE, SIDE, SIDE * SIDE)

    def body(left: Any, right: Any, output: Any) -> None:
        with T.parallel(threads) as task, tiles.tile_definitions():
            with tiles.configured(SIDE, SIDE, TILE_ROWS):
                tiles.clear(grid.kept)
                with T.serial(rounds), T.serial(DEPTH) as step:
                    tiles.keep_awake()

                    def rows(factor: Any, i: int, part: int = 0) -> tiles.Rows:
                        return factor[i, step * parts + part, 0, 0], ROW_BYTES

                    sides = partial(rows, left), partial(rows, right)
                    tiles.multiply(name, grid, *sides, parts)
                for number in range(grid.kept):
                    tiles.store(number, output[task, number, 0, 0], ROW_BYTES)

    factor = (SIDE, DEPTH * parts, TILE_ROWS, ROW_BYTES)
    return build_kernel(
        [
            ("left", factor, "uint8"),
            ("right", factor, "uint8"),
            ("output", (threads, SIDE * SIDE, TILE_ROWS, ROW_BYTES), "uint8"),
        ],
        body,
    )
