"""Smaller tiles, with the same weights, for the rest that whole tiles leave at image ends.

A row of 14 outputs is three tiles of four and one of two, which needs four of the six points, so
that a 14x14 image takes 22 x 22 products instead of 24 x 24. There are up to four regions of equal
tiles: those below the whole tiles, the whole ones, those beside them, and the corner. In this
order, all tiles that have a given point are adjacent, so a register tile of that point may hold
tiles of several regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd.exact_filter import ExactFilter
from neocpu.schedules.vocabulary.layout import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Tiles of one size, counted by rows and columns, in a rectangle of every image from output
    pixel ``top, left`` on; ``first`` is the first's number, ``span`` a whole tile's points in a
    row.
    """

    filters: tuple[ExactFilter, ExactFilter]
    first: int
    rows: int
    columns: int
    top: int
    left: int
    images: int
    span: int

    @property
    def tiles(self) -> int:
        return self.images * self.rows * self.columns

    def corner(self, tile: Any, *, of_input: bool = False) -> tuple[Any, Any, Any]:
        """Return a tile's image and first output pixel, which but for padding is an input's."""
        down, across = self.filters
        number = tile - self.first
        row, column = tirx.floordiv(number, self.columns), tirx.floormod(number, self.columns)
        image = T.Bind(tirx.floordiv(row, self.rows))
        y = self.top + tirx.floormod(row, self.rows) * down.tile
        return image, y, self.left + column * across.tile

    def last(self, axis: int) -> int:
        """Return the first output pixel of the last tile along an axis."""
        start, count = ((self.top, self.rows), (self.left, self.columns))[axis]
        return start + (count - 1) * self.filters[axis].tile

    def point(self, row: Any, column: Any) -> Any:
        """Return the point of a whole tile that has this row and column among its products."""
        down, across = self.filters
        return _point(down.points, across.points, (row, column), self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointClass:
    """The points at all pairs of ``rows`` and ``columns``, which occur in the same tiles: ``tiles``
    of them, from number ``first`` on. ``span`` is the number of points in a row of a whole tile.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    first: int
    tiles: int
    span: int

    @property
    def count(self) -> int:
        return len(self.rows) * len(self.columns)

    def point(self, number: Any) -> Any:
        """Return the point of a whole tile that has ``number`` among these points."""
        place = number // len(self.columns), number % len(self.columns)
        return _point(self.rows, self.columns, place, self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTiles:
    """The regions of all images' outputs, and their points grouped by the tiles that have them."""

    regions: tuple[Region, ...]
    classes: tuple[PointClass, ...]

    @property
    def tiles(self) -> int:
        return sum(region.tiles for region in self.regions)


@lru_cache(maxsize=256)
def edge_tiles(
    filters: tuple[ExactFilter, ExactFilter], images: int, output: tuple[int, int]
) -> EdgeTiles | None:
    """Return the regions of a height and a width of outputs; None if whole tiles leave no rest."""
    if all(length % whole.tile == 0 for whole, length in zip(filters, output, strict=True)):
        return None
    down, across = map(_parts, filters, output)
    regions: list[Region] = []
    first = 0
    for y, x in _order(len(down), len(across)):
        (rows, top, below), (columns, left, beside) = down[y], across[x]
        regions.append(
            Region(
                filters=(below, beside),
                first=first,
                rows=rows,
                columns=columns,
                top=top,
                left=left,
                images=images,
                span=filters[1].span,
            )
        )
        first += regions[-1].tiles
    return EdgeTiles(regions=tuple(regions), classes=tuple(_classes(regions)))


def register_tiles(tiles: int, reg_n: int) -> tuple[int, int]:
    """Return the number of register tiles, and the at most ``reg_n`` tiles of each; some twice."""
    count = ceil_div(tiles, reg_n)
    return count, ceil_div(tiles, count)


def _parts(whole: ExactFilter, length: int) -> list[tuple[int, int, ExactFilter]]:
    """Return the tiles along a dimension: their number, first pixel and filter."""
    count, rest = divmod(length, whole.tile)
    parts = [(count, 0, whole)] if count else []
    if rest:
        parts.append((1, length - rest, ExactFilter(rest, whole.taps, whole.stride)))
    return parts


def _order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield regions, as numbers of rows and columns, in an order that keeps points adjacent."""
    if rows == 2:
        yield 1, 0
    yield 0, 0
    if columns == 2:
        yield 0, 1
        if rows == 2:
            yield 1, 1


def _classes(regions: Sequence[Region]) -> Iterator[PointClass]:
    axes = [_kinds(tuple(region.filters[axis] for region in regions)) for axis in range(2)]
    for rows in axes[0]:
        for columns in axes[1]:
            having = [each for each in regions if _has(each, rows, columns)]
            tiles = sum(each.tiles for each in having)
            first = min(each.first for each in having)
            span = regions[0].span
            yield PointClass(rows=rows, columns=columns, first=first, tiles=tiles, span=span)


def _has(region: Region, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
    down, across = region.filters
    return set(rows) <= set(down.points) and set(columns) <= set(across.points)


def _kinds(filters: Sequence[ExactFilter]) -> list[tuple[int, ...]]:
    """Return the points along an axis: those of all filters, and those of the longest alone."""
    every = max((each.points for each in filters), key=len)
    common = tuple(point for point in every if all(point in each.points for each in filters))
    rest = tuple(point for point in every if point not in common)
    return [kind for kind in (common, rest) if kind]


def _point(rows: Sequence[int], columns: Sequence[int], place: tuple[Any, Any], span: int) -> Any:
    """Return the point at a place in ``rows`` and ``columns``, with ``span`` points in a row."""
    return _place(rows, place[0]) * span + _place(columns, place[1])


def _place(points: Sequence[int], number: Any) -> Any:
    """Return the point with a number: all but the last are consecutive."""
    if isinstance(number, int):
        return points[number]
    *begin, last = points
    assert not begin or list(begin) == list(range(begin[0], begin[0] + len(begin))), points
    plain = number + points[0]
    if not begin or last == begin[-1] + 1:
        return plain
    return T.Select(number == len(begin), last, plain)
