"""Copies of a strip's input for tiles: of rows in one, or of windows' columns side by side."""

from __future__ import annotations

from typing import Any, Final, Protocol

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.matrix_products.joined_rows import JoinedRows
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import JOINED_BLOCK, MatrixTiling
from neocpu.schedules.tir.builder import flat, span
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.traced_sizes import smaller

# The number of values that are copied at a time.
VECTOR: Final = 16


class StripCopier(Protocol):
    """A kernel as copies see it: the memory, and the way in which values and border are stored."""

    @property
    def bits(self) -> str:
        """The type of an element in a tile, of bfloat16 its bits."""

    def lines(self, rows: int, columns: int, phases: tuple[int, int] = (1, 1)) -> Any:
        """Allocate a strip's copy: blocks or lines of channels by parts, phases and pixels."""

    def copy_pixel(self, padded: Any, at: tuple[Any, ...], image: Any, y: Any, x: Any) -> None:
        """Copy the channels of a block or line of a pixel to a place of `lines`."""

    def clear(self, padded: Any, at: tuple[Any, ...], first: int, columns: int) -> None:
        """Fill ``columns`` places of `lines`, of all parts, with the border."""

    def parts_of(self, value: Any) -> tuple[Any, ...]:
        """Return the bits of the parts of a vector of data."""


def join_rows(nest: StripCopier, t: MatrixTiling, joined: JoinedRows, image: Any, top: Any) -> Any:
    """Copy the input of a strip whose first output row is ``top``, by phases, with the border."""
    w = t.workload
    above, left, *_ = w.padding
    down, across = w.stride
    padded = nest.lines(t.strip_rows, joined.pitch, joined.phases)
    with T.serial(int(padded.shape[0])) as chunk, T.serial(t.strip_rows) as row:
        for phase in range(joined.phases[0]):
            y = T.Bind((top + row) * down + (phase - above))
            with T.If(tirx.all(y >= 0, y < w.height)):
                with T.Then():
                    for column in range(joined.phases[1]):
                        at = (chunk, phase, column, row)
                        # Positions from the first to the last one that has a pixel.
                        first = max(0, ceil_div(left - column, across))
                        last = (w.width - 1 + left - column) // across
                        end = smaller(joined.pitch, last + 1)
                        nest.clear(padded, at, 0, first)
                        with T.serial(end - first) as x:
                            own = (first + x) * across + (column - left)
                            nest.copy_pixel(padded, (*at, first + x), image, y, T.Bind(own))
                        nest.clear(padded, at, end, joined.pitch - end)
                with T.Else():
                    for column in range(joined.phases[1]):
                        nest.clear(padded, (chunk, phase, column, row), 0, joined.pitch)
    return padded


def join_columns(nest: StripCopier, t: MatrixTiling, data: Any, image: Any, top: Any) -> Any:
    """Copy the rows of a strip of a picture, with the columns of windows side by side in a line."""
    w = t.workload
    padded = nest.lines(t.strip_rows, t.line_columns)
    size = ceil_div(t.strip_columns * JOINED_BLOCK + t.line, VECTOR) * VECTOR
    rows = T.alloc_buffer((1, t.parts, 1, 1, 1, size // VECTOR, VECTOR), nest.bits, layout=None)
    nest.clear(rows, (0, 0, 0, 0), 0, size // VECTOR)
    values = flat(rows)
    with T.serial(t.strip_rows) as row:
        y = T.Bind(top * w.stride[0] + row - w.padding[0])
        with T.If(tirx.all(y >= 0, y < w.height)):
            with T.Then():
                _copy_row(nest, t, data, values, size, (image * w.height + y) * w.width)
                with T.serial(t.line_columns) as x:
                    for part in range(t.parts):
                        first = part * size + x * (w.stride[1] * JOINED_BLOCK)
                        line = values[span(first, t.line)]
                        T.buffer_store(padded, line, [0, part, 0, 0, row, x, span(0, t.line)])
            with T.Else():
                nest.clear(padded, (0, 0, 0, row), 0, t.line_columns)
    return padded


def _copy_row(
    nest: StripCopier, t: MatrixTiling, data: Any, values: Any, size: int, first: Any
) -> None:
    """Copy a row's parts, one vector of pixels at a time; the last vector moves back."""
    width, left, each = t.workload.width, t.workload.padding[1], VECTOR // JOINED_BLOCK
    pixels = flat(data)
    with T.serial(ceil_div(width, each)) as number:
        x = T.Bind(T.min(number * each, width - each))
        found = T.Bind(pixels[span((first + x) * JOINED_BLOCK, VECTOR)])
        for part, bits in enumerate(nest.parts_of(found)):
            place = part * size + (left + x) * JOINED_BLOCK
            T.buffer_store(values, bits, [span(place, VECTOR)])
