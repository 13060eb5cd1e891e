"""The division of a Winograd convolution into tiles, strips, groups of channels and tasks."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.task_cuts import busiest_share, finer_cut
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.domain import domain_of
from neocpu.schedules.convolutions.winograd.edge_tiles import register_tiles
from neocpu.schedules.tir.builder import part_start
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most bytes of sums of a task: beyond L2 they cost less than reading its input again.
MAX_GROUP_BYTES = 1 << 20
# The most weights that a task transforms at a time, for L2, if it can add up sums in parts.
MAX_MADE_BYTES = 3 << 16


class Tiling:
    """The tiles, register tiles and strips of a workload.

    The tiles of all images, row by row, form one sequence. Register tiles and strips may cross from
    one tile row or image to the next, so only the very last register tile overhangs.

    A dilated convolution is computed as undilated ones, one for each phase of the dilations: rows
    and columns that are ``dilation`` apart only see each other. The tiles of the phases follow each
    other.

    The scheme decides the number of ``strips``. It is raised to a multiple of the threads if a task
    computes all channels of a strip, and otherwise raised if tasks are too few. It is at most the
    number of register tiles. ``edges`` are the regions of whole and smaller tiles.
    """

    def __init__(
        self, workload: Conv2dWorkload, scheme: WinogradScheme, lanes: int, threads: int = 1
    ) -> None:
        self.workload, self.scheme, self.lanes, self.threads = workload, scheme, lanes, threads
        w = workload
        self.domain = domain_of(w)
        self.filters = self.domain.filters(scheme.tile, w.kernel, w.stride)
        # Undilated convolutions along each axis, and tiles in the longest of them.
        axes = tuple(zip((w.out_height, w.out_width), w.dilation, strict=True))
        self._phases = tuple(map(min, axes))
        self._phase_tiles = tuple(
            ceil_div(ceil_div(*each), line.tile)
            for each, line in zip(axes, self.filters, strict=True)
        )
        # Tile rows of an image, and tiles in each.
        self.rows, self.columns = (
            phases * tiles for phases, tiles in zip(self._phases, self._phase_tiles, strict=True)
        )
        has_edges = scheme.edge_tiles and scheme.oc_split  # strips of rows have no corners
        self.edges = self.domain.edge_tiles(scheme.tile, w) if has_edges else None
        # Tiles over all images; register tiles along the image, of which the last may overhang.
        self.tiles = self.edges.tiles if self.edges else w.batch * self.rows * self.columns
        self.blocks = ceil_div(self.tiles, scheme.reg_n)
        self._divide_channels()
        self._divide_tasks()

    def _divide_channels(self) -> None:
        scheme, lanes, domain = self.scheme, self.lanes, self.domain
        w, (down, across) = self.workload, self.filters
        # Vectors of output channels, padding of the layout's last block included; register tiles
        # along them, of which the last may overhang.
        self.oc_vectors = ceil_div(w.out_channels, scheme.oc_bn) * (scheme.oc_bn // lanes)
        self.oc_blocks = ceil_div(self.oc_vectors * lanes, scheme.reg_oc)
        # Products of a tile for one input channel and one output channel.
        self.points = down.span * across.span
        # Input channels in one vector, limited by lanes and the layout; vectors of them, and steps
        # of a product for each.
        self.width = gcd(scheme.ic_bn, lanes * domain.group)
        self.chunks = ceil_div(w.in_channels, self.width)
        self.chunk_steps = self.width // domain.group
        # Whether tasks transform weights, and the bytes of an input vector's and a register tile's.
        self.on_the_fly = scheme.on_the_fly and scheme.oc_split and domain.is_exact
        made = self.points * self.width * scheme.reg_oc * bytes_of(domain.numerics.weights)
        # Vectors of input channels whose products are added up in one part. Register tiles of whole
        # and of smaller tiles may overlap, so their sums cannot be added to later.
        self.part_chunks = self.chunks
        if self.on_the_fly and self.edges is None:
            self.part_chunks = min(self.chunks, max(1, MAX_MADE_BYTES // made))
        elif domain.is_scaled:
            self.part_chunks = scaled_integers.PART // self.width
        self.parts = ceil_div(self.chunks, self.part_chunks)
        self.made_bytes = self.part_chunks * made  # that a task holds at a time

    def _divide_tasks(self) -> None:
        scheme, numerics = self.scheme, self.domain.numerics
        self.strips = self._strips()
        # The longest strip, and its tiles with those that fill the last register tile.
        self.strip_blocks = ceil_div(self.blocks, self.strips)
        self.strip_tiles = self._filled(self.strip_blocks)
        # Blocks of output channels that a task multiplies a point's input with: all of them, or a
        # thread's share, within `MAX_GROUP_BYTES` of sums.
        self.group = self._group(self.strips)
        self.groups = ceil_div(self.oc_blocks, self.group)
        self.tasks = self.strips * (self.groups if scheme.oc_split else 1)
        self.tasks_per_thread = ceil_div(self.tasks, self.threads)
        # Bytes of transformed input, of all and of the longest strip; of the strip's sums, for one
        # register tile's channels and for a group's; and of stored weights, transformed or not.
        each = self.points * self.chunks * self.width * bytes_of(numerics.data)
        self.input_bytes = self._filled(self.blocks) * each
        self.strip_bytes = self.strip_tiles * each
        self.sum_bytes = self._sum_bytes(self.strips)
        self.group_bytes = self.group * self.sum_bytes
        values = self.points * bytes_of(numerics.weights)
        if self.on_the_fly:
            values = prod(self.workload.kernel)
        self.weight_bytes = self.oc_blocks * scheme.reg_oc * values * self.chunks * self.width

    def _strips(self) -> int:
        strips, threads = ceil_div(self.blocks, self.scheme.strip), self.threads
        if self.edges is not None:
            return 1
        if self.scheme.oc_split:
            return finer_cut(min(strips, self.blocks), self.blocks, threads, self._busiest)
        return min(ceil_div(strips, threads) * threads, self.blocks)

    def corner(self, tile: Any, *, of_input: bool = False) -> tuple[Any, Any, Any]:
        """Return a tile's image and first output pixel, or input pixel regardless of padding."""
        image, row, column = self.place(tile)
        down, across = (f.step if of_input else f.tile for f in self.filters)
        return image, self.first(0, row, down), self.first(1, column, across)

    def first(self, axis: int, number: Any, width: int) -> Any:
        """Return the first pixel along an axis of tile ``number``, for tiles ``width`` apart."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles[axis]
        if dilation == 1:
            return number * width
        return tirx.floormod(number, each) * (width * dilation) + tirx.floordiv(number, each)

    def last(self, axis: int) -> int:
        """Return the first pixel that the last tile reads along an axis, without padding."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles[axis]
        return (each - 1) * self.filters[axis].step * dilation + self._phases[axis] - 1

    def point(self, row: Any, column: Any) -> Any:
        """Return the point of a tile with this row and column among its products."""
        return row * self.filters[1].span + column

    def register_tiles(self, reg_n: int) -> list[tuple[int, int, int]]:
        """Return, for at most ``reg_n`` tiles: points, register tiles of each, and their tiles."""
        if self.edges is None:
            return [(self.points, ceil_div(self.tiles, reg_n), reg_n)]
        return [
            (points.count, *register_tiles(points.tiles, reg_n)) for points in self.edges.classes
        ]

    def place(self, tile: Any) -> tuple[Any, Any, Any]:
        """Return image, tile row and tile column of a tile."""
        row = tirx.floordiv(tile, self.columns)
        y, x = tirx.floormod(row, self.rows), tirx.floormod(tile, self.columns)
        return T.Bind(tirx.floordiv(row, self.rows)), y, x

    def strip_start(self, strip: Any) -> Any:
        return part_start(strip, self.blocks, self.strips)

    def _filled(self, blocks: int) -> int:
        """Return the number of tiles in ``blocks`` register tiles; with edge tiles, that of all."""
        return self.tiles if self.edges else blocks * self.scheme.reg_n

    @property
    def busiest_share(self) -> float:
        """The busiest thread's share of all products; strips and groups may differ in size."""
        return self._busiest(self.strips)

    def _busiest(self, strips: int) -> float:
        starts = [0, 1]
        if self.scheme.oc_split:
            starts = [*range(0, self.oc_blocks, self._group(strips)), self.oc_blocks]
        return busiest_share(starts, self.blocks, strips, self.threads)

    def _group(self, strips: int) -> int:
        most = max(1, MAX_GROUP_BYTES // self._sum_bytes(strips))
        groups = ceil_div(self.oc_blocks, most)
        if self.scheme.oc_split:
            groups = ceil_div(groups, self.threads) * self.threads
        return ceil_div(self.oc_blocks, groups)

    def _sum_bytes(self, strips: int) -> int:
        each = self.points * self.scheme.reg_oc * bytes_of(self.domain.numerics.sum)
        return self._filled(ceil_div(self.blocks, strips)) * each
