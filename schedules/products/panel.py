"""Panels: a factor of a product packed for its register tiles, a few vectors side by side.

Panels of bfloat16 combine two rows: an element is a pair in an int32 whose lower half belongs to
the upper row. If the number of rows is odd, zeros follow the last. Other panels may hold what
rounding to bfloat16 leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.bfloat16 import parts_of
from neocpu.schedules.tir.builder import for_vectors, known, less, span, splat, transpose
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.strided_view import StridedView
from neocpu.schedules.vocabulary.traced_sizes import varies

VECTORS = 2
"""The number of vectors in a panel: two leave registers for many rows, whose factors are each used
twice."""

PAIR: Final = 2
"""The number of rows in an element of a panel of bfloat16."""

# The cycles of copying a vector to a panel, and of making one from transposed elements.
COPY_CYCLES: Final = 2
TRANSPOSE_CYCLES: Final = 6


def pack_cycles(view: StridedView, rows: int, columns: int, lanes: int) -> float:
    """Return the cycles of packing a matrix whose view has rows and columns as its last axes."""
    down, along = (view.stride(len(view.axes) - place) for place in (2, 1))
    each = TRANSPOSE_CYCLES if along != 1 and down == 1 else COPY_CYCLES
    return rows * ceil_div(columns, lanes) * each


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix in a flat tensor: element ``(i, j)`` is at ``start + i * down + j * along``."""

    buffer: Any
    start: Any
    down: int
    along: int

    def place(self, i: Any, j: Any) -> Any:
        """Return the place of an element."""
        return self.start + i * self.down + j * self.along

    def transposed(self) -> Matrix:
        """Return the matrix with rows and columns exchanged."""
        return Matrix(self.buffer, self.start, self.along, self.down)

    def element(self, i: Any, j: Any) -> Any:
        """Return an element."""
        return self.buffer[self.place(i, j)]

    def vector(self, i: Any, j: Any, width: int) -> Any:
        """Return ``width`` elements of a row from column ``j`` on."""
        if width == 1:
            return self.element(i, j)
        return self.buffer[T.ramp(self.place(i, j), self.along, width)]

    def rows_from(self, first: Any) -> Callable[[int, Any], Any]:
        """Return ``read(i, j)``, which reads an element, with rows counted from ``first``."""
        return lambda i, j: self.element(first + i, j)

    def vectors_from(self, first: Any) -> Callable[[Any, Any, int], Any]:
        """Return ``read(i, j, width)``: a `vector`, with rows counted from ``first``."""
        return lambda i, j, width: self.vector(first + i, j, width)


def matrix_at(buffer: Any, view: StridedView, index: Sequence[Any]) -> Matrix:
    """Return the matrix of a view at an index of the axes before the last two."""
    rank = len(index)
    return Matrix(buffer, T.Bind(view.start(index)), view.stride(rank), view.stride(rank + 1))


def panels_of(columns: int, lanes: int) -> int:
    """Return the number of panels of ``columns`` columns; the last may have fewer vectors."""
    return ceil_div(columns, VECTORS * lanes)


def each_panel(columns: Any, lanes: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Emit the body for a panel's number and its vectors' columns: full panels, then the last. An
    expression of ``columns`` gives whole panels.
    """
    if not isinstance(columns, int):
        with T.serial(columns // (VECTORS * lanes)) as panel:
            yield panel, (lanes,) * VECTORS
        return
    full, rest = divmod(columns, VECTORS * lanes)
    if full:
        with T.serial(full) as panel:
            yield panel, (lanes,) * VECTORS
    if rest:
        yield full, tuple(min(lanes, rest - first) for first in range(0, rest, lanes))


def allocate(rows: int, columns: int, lanes: int, matrices: int = 1) -> Any:
    """Allocate the panels of equal matrices: ``(panel, row, column of the panel)``."""
    shape = (matrices * panels_of(columns, lanes), rows, VECTORS * lanes)
    return T.alloc_buffer(shape, "float32", layout=None)


def allocate_pairs(rows: int, columns: int, lanes: int) -> Any:
    """Allocate the panels of a matrix in bfloat16: ``(panel, pair of rows, column)``."""
    shape = (panels_of(columns, lanes), ceil_div(rows, PAIR), VECTORS * lanes)
    return T.alloc_buffer(shape, "int32", layout=None)


def reader(panels: Any, number: Any, lanes: int, first: Any = 0) -> Callable[[Any, int], Any]:
    """Return ``read(row, v)``: a vector of a panel, with rows, or pairs, from ``first`` on."""
    return lambda row, v: panels[number, first + row, span(v * lanes, lanes)]


def pack(
    parts: Sequence[Any],
    source: Matrix,
    rows: int,
    columns: int,
    lanes: int,
    scale: float = 1.0,
    first: Any = 0,
) -> None:
    """Copy a matrix, scaled, to its panels, which begin with number ``first``. `parts` has those of
    each part of a value: one, or two of bfloat16.

    Lanes beyond the columns are left unchanged::

        for vector of columns:
            for row: panels[..., row, vector] = source[row, vector]       # neighbours in memory
            for tile of rows: panels[...] = transposed(source[...])       # or rows are neighbours
    """
    if source.along != 1 and source.down == 1:
        _pack_transposed(parts, source, rows, columns, lanes, scale, first)
        return
    if _has_pairs(parts):
        _pack_pairs(parts, source, rows, columns, lanes, scale)
        return

    def copy(column: Any, width: int) -> None:
        panel, lane = _lane(column, lanes)
        with T.serial(rows) as row, T.vectorized(width) as o:
            value = _times(source.element(row, column + o), scale)
            T.buffer_store(parts[0], value, [first + panel, row, lane + o])

    for_vectors(columns, lanes, copy)


def _has_pairs(parts: Sequence[Any]) -> bool:
    return str(parts[0].dtype) == "int32"


def _pack_pairs(
    parts: Sequence[Any], source: Matrix, rows: int, columns: int, lanes: int, scale: float
) -> None:
    def copy(column: Any, width: int) -> None:
        panel, lane = _lane(column, lanes)

        def store(pair: Any, count: int) -> None:
            both = [
                _times(source.vector(PAIR * pair + row, column, width), scale, width)
                for row in range(count)
            ]
            _store_pair(parts, [panel, pair, span(lane, width)], both, width)

        if varies(rows):
            count = known(rows)
            with T.serial(count // PAIR) as pair:
                store(pair, PAIR)
            with T.serial(count % PAIR):
                store(count // PAIR, 1)
            return
        with T.serial(rows // PAIR) as pair:
            store(pair, PAIR)
        if rows % PAIR:
            store(rows // PAIR, 1)

    for_vectors(columns, lanes, copy)


def _store_pair(parts: Sequence[Any], at: list[Any], rows: Sequence[Any], width: int) -> None:
    """Store vectors of two rows, or of the last one, as pairs of bfloat16."""
    values = map(T.Bind, rows) if len(parts) > 1 else rows  # whose remainders are values again
    made = (parts_of(value, width, len(parts)) for value in values)
    for panels, bits in zip(parts, zip(*made, strict=True), strict=True):
        T.buffer_store(panels, _pair(bits, width), at)


def _pair(rows: Sequence[Any], width: int) -> Any:
    """Return the bits of two rows, or of the last one, as a vector of pairs."""
    low, *high = (row.astype(_words(width)) for row in rows)
    if not high:
        return low
    return tirx.bitwise_or(low, tirx.shift_left(high[0], splat(tirx.const(16, "int32"), width)))


def _words(width: int) -> str:
    return "int32" if width == 1 else f"int32x{width}"


def _times(value: Any, scale: float, lanes: int = 1) -> Any:
    if scale == 1:
        return value
    factor = tirx.const(scale, "float32")
    return value * (factor if lanes == 1 else splat(factor, lanes))


def _lane(column: Any, lanes: int) -> tuple[Any, Any]:
    width = VECTORS * lanes
    return tirx.floordiv(column, width), tirx.floormod(column, width)


def _squares(rows: int, lanes: int) -> Iterator[tuple[Any, Any, int]]:
    """Yield the first row, the number and the edge of squares of rows, the largest first."""
    row: Any = 0
    if varies(rows):
        height = known(rows)
        for edge in (lanes >> power for power in range(lanes.bit_length())):
            count = (height - row) // edge
            yield row, count, edge
            row = T.Bind(row + count * edge)
        return
    edge = lanes
    while row < rows:
        while edge > rows - row:
            edge //= 2
        count = (rows - row) // edge
        yield row, count, edge
        row += count * edge


def _pack_transposed(
    parts: Sequence[Any],
    source: Matrix,
    rows: int,
    columns: int,
    lanes: int,
    scale: float,
    number: Any,
) -> None:
    def tiles(column: Any, width: int) -> None:
        for row, count, edge in _squares(rows, lanes):
            with T.serial(count) as tile:
                for first in range(0, width, edge):
                    square(row + tile * edge, column + first, edge, min(edge, width - first))

    def within(column: Any) -> Any:
        return T.min(column, less(columns, 1)) if varies(columns) else column

    def square(row: Any, column: Any, edge: int, valid: int) -> None:
        zero = splat(tirx.const(0, "float32"), edge)
        loaded = [
            T.Bind(source.buffer[span(source.place(row, within(column + k)), edge)])
            if k < valid
            else zero
            for k in range(edge)
        ]
        panel, lane = _lane(column, lanes)
        made = [_times(vector, scale, edge) for vector in transpose(loaded)]
        if _has_pairs(parts):
            row = tirx.floordiv(row, PAIR)
            for k in range(0, edge, PAIR):
                at = [number + panel, row + k // PAIR, span(lane, edge)]
                _store_pair(parts, at, made[k : k + PAIR], edge)
            return
        for k, vector in enumerate(made):
            T.buffer_store(parts[0], vector, [number + panel, row + k, span(lane, edge)])

    if varies(columns):  # the last vector has the last column several times
        with T.serial((known(columns) + (lanes - 1)) // lanes) as i:
            tiles(i * lanes, lanes)
        return
    for_vectors(columns, lanes, tiles)
