"""Float32 feature maps of few channels, such as pictures, to NCHW4c of 8 bits in one pass.

Quantising and then changing the layout would write and read every byte once more. Four channels of
a pixel are one word, so that a vector of words takes a vector of pixels from each channel.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.layout_transform import TASK_PIXELS
from neocpu.schedules.tir.builder import build_kernel, span, splat, task_loop
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

WORD: Final = 4
"""Channels of a block."""
SOURCE: Final = Format(NCHW, "float32")
DESTINATION: Final = Format(DataLayout(WORD), "uint8")
_LARGEST: Final = 255.0


def lower_quantised_pack(
    shape: tuple[int, ...], scale: float, zero: int, target: CpuTarget
) -> tirx.PrimFunc:
    """Scheduled ``PrimFunc(data, output)``: `SOURCE` to `DESTINATION`.

    Parameters
    ----------
    shape : tuple of int
        Logical NCHW shape. Lanes that pad the channels are zero.
    scale, zero : float, int
        Stored are ``saturate(round(data / scale) + zero)``, halves to even, as by `quantise`.
    """
    n, c, h, w = shape
    pixels, chunks = h * w, ceil_div(c, WORD)
    lanes = target.lanes("float32")
    while lanes > pixels:
        lanes //= 2
    ranges = ceil_div(pixels, TASK_PIXELS)
    per_range = ceil_div(ceil_div(pixels, lanes), ranges)
    parameters = (
        ("data", SOURCE.shape(shape), SOURCE.dtype),
        ("output", DESTINATION.shape(shape), DESTINATION.dtype),
    )

    def word(data: Any, image: Any, first: Any, channels: int, pixel: Any) -> Any:
        total = None
        for k in range(channels):
            real = data[image, first + k, span(pixel, lanes)]
            each = _stored(real, scale, zero, lanes)
            if k:
                each = tirx.shift_left(each, splat(tirx.const(8 * k, "int32"), lanes))
            total = each if total is None else tirx.bitwise_or(total, each)
        return total

    def body(data: Any, output: Any) -> None:
        data = T.decl_buffer((n, c, pixels), "float32", data=data.data, layout=None)
        words = T.decl_buffer((n, chunks, pixels), "int32", data=output.data, layout=None)
        tail = c - (chunks - 1) * WORD
        with task_loop(n * chunks * ranges, n * chunks * WORD * pixels) as task:
            image, chunk = task // (chunks * ranges), task // ranges % chunks
            first = task % ranges * per_range
            with T.serial(T.max(T.min(per_range, ceil_div(pixels, lanes) - first), 0)) as step:
                pixel = T.Bind(T.min((first + step) * lanes, pixels - lanes))

                def store(channels: int) -> None:
                    value = word(data, image, chunk * WORD, channels, pixel)
                    T.buffer_store(words, value, [image, chunk, span(pixel, lanes)])

                if chunks == 1 or tail == WORD:
                    store(tail)
                else:
                    with T.If(chunk < chunks - 1):
                        with T.Then():
                            store(WORD)
                        with T.Else():
                            store(tail)

    return build_kernel(parameters, body)


def _stored(real: Any, scale: float, zero: int, lanes: int) -> Any:
    """Return a vector of what float32 numbers are stored as, as int32."""
    kind = "float32" if lanes == 1 else f"float32x{lanes}"

    def every(value: float) -> Any:
        return splat(tirx.const(value, "float32"), lanes)

    whole = tirx.call_llvm_pure_intrin(kind, "llvm.nearbyint", real / every(scale))
    moved = whole + every(float(zero))
    stored = tirx.max(tirx.min(moved, every(_LARGEST)), every(0.0)).astype(
        kind.replace("float32", "int32")
    )
    # LLVM takes minima and maxima as if there were no NaN, which then has bits beyond a byte.
    return tirx.bitwise_and(stored, splat(tirx.const(int(_LARGEST), "int32"), lanes))
