"""Where whole tiles leave a rest at an image's ends: smaller tiles for it, on the same weights.

A row of 14 outputs is three tiles of four and one of two, which takes four of the six points, so
that a 14x14 image takes 22 x 22 products in place of 24 x 24. There are up to four regions of equal
tiles: those below the whole tiles, the whole ones, those beside them, and the corner. In this order
the tiles that have a point lie together, whichever it is: a register tile of it may hold tiles of
several regions.
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
    """Tiles of one size that cover a rectangle of every image.

    Attributes
    ----------
    filters : tuple of ExactFilter
        Along rows and columns.
    first : int
        Number of its first tile.
    rows, columns : int
        Tiles of an image.
    top, left : int
        First output pixel.
    images : int
    span : int
        Points of a whole tile's row.
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
        """Tiles of all images."""
        return self.images * self.rows * self.columns

    def corner(self, tile: Any, *, of_input: bool = False) -> tuple[Any, Any, Any]:
        """Image, and first output pixel, of a tile, by its number among all regions'.

        But for padding it is the first that it reads, too.
        """
        down, across = self.filters
        number = tile - self.first
        row, column = tirx.floordiv(number, self.columns), tirx.floormod(number, self.columns)
        image = T.Bind(tirx.floordiv(row, self.rows))
        y = self.top + tirx.floormod(row, self.rows) * down.tile
        return image, y, self.left + column * across.tile

    def last(self, axis: int) -> int:
        """Return the first output pixel, along an axis, of the last tile."""
        start, count = ((self.top, self.rows), (self.left, self.columns))[axis]
        return start + (count - 1) * self.filters[axis].tile

    def point(self, row: Any, column: Any) -> Any:
        """Return which of a whole tile's points its product of a row and a column is."""
        down, across = self.filters
        return _point(down.points, across.points, (row, column), self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointClass:
    """Points that the same tiles have.

    Attributes
    ----------
    rows, columns : tuple of int
        Along each axis of a tile; all pairs are points.
    first, tiles : int
        Number of the first tile that has them, and how many do.
    span : int
        Points of a whole tile's row.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    first: int
    tiles: int
    span: int

    @property
    def count(self) -> int:
        """Points."""
        return len(self.rows) * len(self.columns)

    def point(self, number: Any) -> Any:
        """Return which of a whole tile's points the one with a number among these is."""
        place = number // len(self.columns), number % len(self.columns)
        return _point(self.rows, self.columns, place, self.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeTiles:
    """The regions of all images' outputs, and the points of their tiles by who has them."""

    regions: tuple[Region, ...]
    classes: tuple[PointClass, ...]

    @property
    def tiles(self) -> int:
        """Tiles of all regions."""
        return sum(region.tiles for region in self.regions)


@lru_cache(maxsize=256)
def edge_tiles(
    filters: tuple[ExactFilter, ExactFilter], images: int, output: tuple[int, int]
) -> EdgeTiles | None:
    """Return the regions of outputs of a height and a width; None if whole tiles leave no rest."""
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
    """Return how many register tiles of at most ``reg_n`` take so many, and what each holds.

    The last one may hold tiles of the one before it, too.
    """
    count = ceil_div(tiles, reg_n)
    return count, ceil_div(tiles, count)


def _parts(whole: ExactFilter, length: int) -> list[tuple[int, int, ExactFilter]]:
    """Tiles along a dimension, first pixel and filter: of whole tiles, and of what they leave."""
    count, rest = divmod(length, whole.tile)
    parts = [(count, 0, whole)] if count else []
    if rest:
        parts.append((1, length - rest, ExactFilter(rest, whole.taps, whole.stride)))
    return parts


def _order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield regions as rows and columns of them, so that those with a point are neighbours."""
    if rows == 2:
        yield 1, 0
    yield 0, 0
    if columns == 2:
        yield 0, 1
        if rows == 2:
            yield 1, 1


def _classes(regions: Sequence[Region]) -> Iterator[PointClass]:
    """Group points by the set of tiles that have them."""
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
    """Points along an axis: those that all filters have, and those that the longest alone has."""
    every = max((each.points for each in filters), key=len)
    common = tuple(point for point in every if all(point in each.points for each in filters))
    rest = tuple(point for point in every if point not in common)
    return [kind for kind in (common, rest) if kind]


def _point(rows: Sequence[int], columns: Sequence[int], place: tuple[Any, Any], span: int) -> Any:
    """Return which point, of ``span`` in a row, has a place in rows and columns of some of them."""
    return _place(rows, place[0]) * span + _place(columns, place[1])


def _place(points: Sequence[int], number: Any) -> Any:
    """Return the point that has a number: all but the last are neighbours."""
    if isinstance(number, int):
        return points[number]
    *begin, last = points
    assert not begin or list(begin) == list(range(begin[0], begin[0] + len(begin))), points
    plain = number + points[0]
    if not begin or last == begin[-1] + 1:
        return plain
    return T.Select(number == len(begin), last, plain)
