"""The model of AMX refuses what the CPU refuses, and rows that are slow on the CPU."""

import struct

import numpy as np
import pytest
from tile_unit import TileError, TileUnit, length

CONFIGURE = bytes.fromhex("c4e2784907")  # ldtilecfg (%rdi)
RELEASE = bytes.fromhex("c4e27849c0")
LOAD = bytes.fromhex("c4e27b4b043e")  # tileloadd (%rsi,%rdi), %tmm0
PRODUCT = bytes.fromhex("c4e2715ec2")  # tdpbusd %tmm1, %tmm2, %tmm0
ZERO = bytes.fromhex("c4e27b49c0")  # tilezero %tmm0


def unit(rows=16, width=64):
    memory = bytearray(1 << 12)
    rest = [0] * 13
    widths, heights = (width, 64, width, *rest), (rows, width // 4, rows, *rest)
    words = struct.pack("<BB14x16H16B", 1, 0, *widths, *heights)
    memory[:64] = words
    made = TileUnit(lambda at, size: bytes(memory[at : at + size]), lambda at, content: None)
    registers = {"rdi": 0, "rsi": 64}
    made.step(CONFIGURE, registers.__getitem__)
    registers["rdi"] = 64
    return made, registers


def test_lengths():
    assert [length(code) for code in (CONFIGURE, RELEASE, LOAD, PRODUCT, ZERO)] == [5, 5, 6, 5, 5]
    assert length(bytes.fromhex("62f1744858c1") + bytes(9)) == 0


def test_products_are_those_of_the_loaded_tiles():
    made, registers = unit()
    made.tiles[2], made.tiles[1] = 255, 128  # as signed bytes -128
    made.step(ZERO, registers.__getitem__)
    made.step(PRODUCT, registers.__getitem__)
    assert np.all(made.tiles[0].view(np.int32) == 255 * -128 * 64)


def test_tiles_need_a_configuration():
    made, registers = unit()
    made.step(RELEASE, registers.__getitem__)
    assert not made.is_configured
    with pytest.raises(TileError, match="before tiles are configured"):
        made.step(ZERO, registers.__getitem__)


def test_rows_lie_within_lines():
    made, registers = unit()
    made.step(LOAD, registers.__getitem__)
    registers["rsi"] += 32
    with pytest.raises(TileError, match="crosses lines"):
        made.step(LOAD, registers.__getitem__)


def test_operands_fit_each_other():
    made, registers = unit()
    made.rows[2] = 15
    with pytest.raises(TileError, match="do not fit"):
        made.step(PRODUCT, registers.__getitem__)
