"""AMX for a CPU without it: its instructions in numpy, on tiles that are kept here.

Products are computed as `neocpu.schedules.isa` describes them. Full rows have to lie within cache
lines, because others take six times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.isa import catalogue

TILES: Final = 8
PRODUCTS: Final = {
    # (opcode, prefix): the instruction, and how its operands are read
    (0x5C, 2): (catalogue.TDPBF16PS, np.uint16, np.uint16, np.float32),
    (0x5E, 1): (catalogue.TDPBUSD, np.uint8, np.int8, np.int32),
    (0x5E, 3): (catalogue.TDPBSSD, np.int8, np.int8, np.int32),
}
REGISTERS: Final = (
    *("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"),
    *(f"r{number}" for number in range(8, 16)),
)
_CONFIGURE, _MOVE = 0x49, 0x4B
_OPCODES: Final = {_CONFIGURE, _MOVE, *(opcode for opcode, _ in PRODUCTS)}


class TileError(Exception):
    """An access that the CPU would refuse by an exception, or that would be six times as slow."""


@dataclass(slots=True)
class TileUnit:
    """Eight tiles and their configuration, in memory that ``read`` and ``write`` access."""

    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]
    rows: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    tiles: NDArray[np.uint8] = field(
        default_factory=lambda: np.zeros(
            (TILES, catalogue.TILE_ROWS, catalogue.ROW_BYTES), np.uint8
        )
    )

    @property
    def is_configured(self) -> bool:
        """Whether a program has tiles that it did not release."""
        return bool(self.rows)

    def step(self, code: bytes, register: Callable[[str], int]) -> None:
        """Do the instruction that ``code`` begins with, one of those `length` knows."""
        _, second, opcode, modrm = code[1:5]
        prefix, third = second & 3, ~(second >> 3) & 15
        mode, tile, other = modrm >> 6, modrm >> 3 & 7, modrm & 7
        if mode == 3 and opcode == _CONFIGURE and prefix == 0:  # tilerelease
            self.rows, self.widths = [], []
            return
        if mode != 3 and opcode == _CONFIGURE and prefix == 0:  # ldtilecfg
            self._configure(self.read(_address(code, register)[0], 64))
            return
        if not self.is_configured:
            raise TileError("a tile is used before tiles are configured")
        if mode == 3 and opcode == _CONFIGURE and prefix == 3:  # tilezero
            self.tiles[tile] = 0
        elif mode == 3:
            self._multiply((opcode, prefix), tile, other, third)
        elif opcode == _MOVE and prefix in (2, 3):
            self._move(tile, *_address(code, register), is_load=prefix == 3)
        else:
            raise TileError(f"an instruction that is not known here: {code[:8].hex()}")

    def _configure(self, words: bytes) -> None:
        if words[0] != 1:
            raise TileError(f"tiles are configured by palette {words[0]}")
        self.widths, self.rows = list(struct.unpack_from("<8H", words, 16)), list(words[48:56])
        if max(self.rows) > catalogue.TILE_ROWS or max(self.widths) > catalogue.ROW_BYTES:
            raise TileError(f"tiles of {self.rows} rows of {self.widths} bytes")
        self.tiles[:] = 0

    def _move(self, tile: int, start: int, stride: int, *, is_load: bool) -> None:
        width = self.widths[tile]
        for row in range(self.rows[tile]):
            at = start + row * stride & (1 << 64) - 1
            if width == catalogue.ROW_BYTES and at % catalogue.ROW_BYTES:
                raise TileError(f"a row of a tile crosses lines, at {at:#x}")
            if is_load:
                self.tiles[tile, row] = 0
                self.tiles[tile, row, :width] = np.frombuffer(self.read(at, width), np.uint8)
            else:
                self.write(at, self.tiles[tile, row, :width].tobytes())
        if is_load:
            self.tiles[tile, self.rows[tile] :] = 0

    def _multiply(self, key: tuple[int, int], sums: int, data: int, weights: int) -> None:
        if key not in PRODUCTS:
            raise TileError(f"a product that is not known here: {key}")
        made, of_data, of_weights, of_sums = PRODUCTS[key]
        m, n, words = self.rows[sums], self.widths[sums] // 4, self.widths[data] // 4
        if self.rows[data] != m or self.rows[weights] != words or self.widths[weights] != 4 * n:
            raise TileError("tiles of a product do not fit each other")
        x = self.tiles[data, :m, : 4 * words].copy().view(of_data)
        y = self.tiles[weights, :words, : 4 * n].copy().view(of_weights)
        y = y.reshape(words, n, made.group).transpose(1, 0, 2).reshape(n, words * made.group)
        total = self.tiles[sums, :m, : 4 * n].copy().view(of_sums)
        found = np.ascontiguousarray(made.semantics(x, np.ascontiguousarray(y), total))
        self.tiles[sums, :m, : 4 * n] = found.view(np.uint8)


def length(code: bytes) -> int:
    """Return the bytes of the instruction of AMX that ``code`` begins with; 0 of any other."""
    if code[0] != 0xC4 or code[1] & 0x1F != 2 or code[3] not in _OPCODES:
        return 0
    mode, other = code[4] >> 6, code[4] & 7
    return 5 if mode == 3 else 5 + (other == 4) + (0, 1, 4)[mode]


def _address(code: bytes, register: Callable[[str], int]) -> tuple[int, int]:
    """Return base with displacement, and what the index register adds for each row."""
    first, modrm = code[1], code[4]
    index_bit, base_bit = (~first >> 6 & 1) * 8, (~first >> 5 & 1) * 8
    mode, other, at, stride = modrm >> 6, modrm & 7, 5, 0
    if other == 4:
        sib, at = code[5], 6
        base = register(REGISTERS[(sib & 7) + base_bit])
        index = (sib >> 3 & 7) + index_bit
        stride = 0 if index == 4 else register(REGISTERS[index]) << (sib >> 6)
    else:
        base = register(REGISTERS[other + base_bit])
    displacement = 0
    if mode == 1:
        (displacement,) = struct.unpack_from("<b", code, at)
    elif mode == 2:
        (displacement,) = struct.unpack_from("<i", code, at)
    return base + displacement, stride
