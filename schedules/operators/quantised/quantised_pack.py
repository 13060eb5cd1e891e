"""Conversion of float32 feature maps with few channels to NCHW4c of 8 bits in one pass.

Quantising first and changing the layout afterwards would write and read every byte once more. Four
channels of a pixel are one word, so a vector of words takes a vector of pixels from each channel.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.layout_transform import Tile, emit_tiles
from neocpu.schedules.tir.builder import build_kernel, span, splat
from neocpu.schedules.tir.vector_terms import to_even
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

WORD: Final = 4
"""The number of channels in a block."""
SOURCE: Final = Format(NCHW, "float32")
DESTINATION: Final = Format(DataLayout(WORD), "uint8")
_LARGEST: Final = 255.0


def lower_quantised_pack(
    shape: tuple[int, ...], scale: float, zero: int, target: CpuTarget
) -> tirx.PrimFunc:
    """Return the scheduled ``PrimFunc(data, output)`` from `SOURCE` to `DESTINATION`.

    Parameters
    ----------
    shape : tuple of int
        The logical NCHW shape. Lanes that pad the channels are zero.
    scale, zero : float, int
        The stored values are ``saturate(round(data / scale) + zero)``, halves to even, as in
        `quantise`.
    """
    n, c, h, w = shape
    lanes = target.lanes("float32")
    while lanes > h * w:
        lanes //= 2
    parameters = (
        ("data", SOURCE.shape(shape), SOURCE.dtype),
        ("output", DESTINATION.shape(shape), DESTINATION.dtype),
    )

    def emit(data: Any, words: Any, tile: Tile) -> None:
        word = None
        for k in range(tile.valid):
            real = data[tile.image, tile.chunk * tile.block + k, span(tile.pixel, lanes)]
            byte = _stored(real, scale, zero, lanes)
            if word is None:
                word = byte
            else:
                moved = tirx.shift_left(byte, splat(tirx.const(8 * k, "int32"), lanes))
                word = tirx.bitwise_or(word, moved)
        T.buffer_store(words, word, [tile.image, tile.chunk, span(tile.pixel, lanes)])

    def body(data: Any, output: Any) -> None:
        planes = T.decl_buffer((n, c, h * w), "float32", data=data.data, layout=None)
        words = (n, ceil_div(c, WORD), h * w)
        stored = T.decl_buffer(words, "int32", data=output.data, layout=None)
        emit_tiles((n, c, h * w), WORD, (WORD, lanes), emit, planes, stored)

    return build_kernel(parameters, body)


def _stored(real: Any, scale: float, zero: int, lanes: int) -> Any:
    """Return a vector of float32 numbers as stored, in int32."""
    kind = "float32" if lanes == 1 else f"float32x{lanes}"

    def every(value: float) -> Any:
        return splat(tirx.const(value, "float32"), lanes)

    whole = to_even(real / every(scale))
    moved = whole + every(float(zero))
    stored = tirx.max(tirx.min(moved, every(_LARGEST)), every(0.0)).astype(
        kind.replace("float32", "int32")
    )
    # LLVM compiles minima and maxima as if there were no NaN; a NaN then has bits beyond a byte.
    return tirx.bitwise_and(stored, splat(tirx.const(int(_LARGEST), "int32"), lanes))
