"""The division of a Winograd convolution into tiles, strips, groups of channels and tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd, prod
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.task_cuts import finer_cut
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.domain import Domain, domain_of
from neocpu.schedules.convolutions.winograd.edge_tiles import EdgeTiles, register_tiles
from neocpu.schedules.convolutions.winograd.filters import Filter
from neocpu.schedules.tir.builder import part_start
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most bytes of sums that a task may keep. Beyond L2 they are written once and read once, in
# order, which costs less than reading the transformed input again.
MAX_GROUP_BYTES = 1 << 20
# The most bytes of weights that a task transforms and keeps at a time if it can add up sums in
# parts: they must stay in L2 with the data they are multiplied with.
MAX_MADE_BYTES = 3 << 16


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles, register tiles and strips of a workload.

    The tiles of all images, row by row, form one sequence. Register tiles and strips may cross from
    one tile row or image to the next, so only the very last register tile overhangs.

    A dilated convolution is computed as undilated ones, one for each phase of the dilations: rows
    and columns that are ``dilation`` apart only see each other. The tiles of the phases follow each
    other.

    There are as many ``strips`` as the scheme asks for. If a task computes all channels of one,
    they are a multiple of the threads; otherwise more if the groups of channels are too few for the
    threads. They never exceed the register tiles. ``edges`` are the regions of whole and smaller
    tiles.
    """

    workload: Conv2dWorkload
    scheme: WinogradScheme
    lanes: int
    threads: int = 1
    # These are fields because estimates read them dozens of times each.
    domain: Domain = field(init=False, repr=False, compare=False)
    filters: tuple[Filter, Filter] = field(init=False, repr=False, compare=False)
    edges: EdgeTiles | None = field(init=False, repr=False, compare=False)
    tiles: int = field(init=False, repr=False, compare=False)
    strips: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        w, scheme = self.workload, self.scheme
        object.__setattr__(self, "domain", domain_of(w))
        object.__setattr__(self, "filters", self.domain.filters(scheme.tile, w.kernel, w.stride))
        has_edges = scheme.edge_tiles and scheme.oc_split  # strips of rows have no corners
        edges = self.domain.edge_tiles(scheme.tile, w) if has_edges else None
        object.__setattr__(self, "edges", edges)
        tiles = edges.tiles if edges else w.batch * self.rows * self.columns
        object.__setattr__(self, "tiles", tiles)
        strips = ceil_div(self.blocks, scheme.strip)
        if edges is not None:
            strips = 1
        elif scheme.oc_split:
            strips = min(strips, self.blocks)
            strips = finer_cut(strips, self.blocks, self.threads, self._busiest)
        else:
            strips = min(ceil_div(strips, self.threads) * self.threads, self.blocks)
        object.__setattr__(self, "strips", strips)

    @property
    def on_the_fly(self) -> bool:
        return self.scheme.on_the_fly and self.scheme.oc_split and self.domain.is_exact

    @property
    def rows(self) -> int:
        return self._phases(0) * self._phase_tiles(0)

    @property
    def columns(self) -> int:
        return self._phases(1) * self._phase_tiles(1)

    def corner(self, tile: Any, *, of_input: bool = False) -> tuple[Any, Any, Any]:
        """Return the image and the first output pixel of a tile, or its first input pixel.

        The input pixel does not take padding into account.
        """
        image, row, column = self.place(tile)
        down, across = (f.step if of_input else f.tile for f in self.filters)
        return image, self.first(0, row, down), self.first(1, column, across)

    def _phases(self, axis: int) -> int:
        return min(self.workload.dilation[axis], self._length(axis))

    def _phase_tiles(self, axis: int) -> int:
        """Return the number of tiles in the longest undilated convolution along an axis."""
        length = ceil_div(self._length(axis), self.workload.dilation[axis])
        return ceil_div(length, self.filters[axis].tile)

    def _length(self, axis: int) -> int:
        return (self.workload.out_height, self.workload.out_width)[axis]

    def first(self, axis: int, number: Any, width: int) -> Any:
        """Return the first pixel along an axis of tile ``number``, for tiles ``width`` apart."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles(axis)
        if dilation == 1:
            return number * width
        return tirx.floormod(number, each) * (width * dilation) + tirx.floordiv(number, each)

    def last(self, axis: int) -> int:
        """Return the first pixel that the last tile reads along an axis, without padding."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles(axis)
        return (each - 1) * self.filters[axis].step * dilation + self._phases(axis) - 1

    def point(self, row: Any, column: Any) -> Any:
        """Return the point of a tile with this row and column among its products."""
        return row * self.filters[1].span + column

    @property
    def points(self) -> int:
        """The number of products of a tile for one input channel and one output channel."""
        down, across = self.filters
        return down.span * across.span

    @property
    def width(self) -> int:
        """The number of input channels in one vector, limited by lanes and the layout."""
        return gcd(self.scheme.ic_bn, self.lanes * self.domain.group)

    @property
    def chunks(self) -> int:
        """The number of vectors of input channels."""
        return ceil_div(self.workload.in_channels, self.width)

    @property
    def parts(self) -> int:
        """The number of parts of sums over input channels, each of `part_chunks` but the last."""
        return ceil_div(self.chunks, self.part_chunks)

    @property
    def part_chunks(self) -> int:
        """The number of vectors of input channels whose products are added up in one part.

        Register tiles of whole and of smaller tiles may overlap, so their sums cannot be added to
        later.
        """
        if self.on_the_fly and self.edges is None:
            return min(self.chunks, max(1, MAX_MADE_BYTES // self._made_bytes))
        return scaled_integers.PART // self.width if self.domain.is_scaled else self.chunks

    @property
    def chunk_steps(self) -> int:
        """The number of steps of a product for one vector of input channels."""
        return self.width // self.domain.group

    @property
    def oc_vectors(self) -> int:
        """The number of vectors of output channels, padding of the layout's last block included."""
        return ceil_div(self.workload.out_channels, self.scheme.oc_bn) * (
            self.scheme.oc_bn // self.lanes
        )

    @property
    def oc_blocks(self) -> int:
        """The number of register tiles along the output channels; the last may overhang."""
        return ceil_div(self.oc_vectors * self.lanes, self.scheme.reg_oc)

    @property
    def blocks(self) -> int:
        """The number of register tiles along the image; the last may overhang."""
        return ceil_div(self.tiles, self.scheme.reg_n)

    def register_tiles(self, reg_n: int) -> list[tuple[int, int, int]]:
        """Return, for at most ``reg_n`` tiles: points, register tiles of each, and their tiles."""
        if self.edges is None:
            return [(self.points, ceil_div(self.tiles, reg_n), reg_n)]
        return [
            (points.count, *register_tiles(points.tiles, reg_n)) for points in self.edges.classes
        ]

    @property
    def strip_blocks(self) -> int:
        return ceil_div(self.blocks, self.strips)

    @property
    def strip_tiles(self) -> int:
        """The number of tiles in the longest strip, with those that fill its last register tile."""
        return self._filled(self.strip_blocks)

    def _filled(self, blocks: int) -> int:
        """Return the tiles of ``blocks`` register tiles; with smaller tiles, all that exist."""
        return self.tiles if self.edges else blocks * self.scheme.reg_n

    @property
    def group(self) -> int:
        """The number of blocks of output channels that a task multiplies a point's input with.

        It is all of them, or a thread's share, within `MAX_GROUP_BYTES` of sums.
        """
        return self._group(self.strips)

    def _group(self, strips: int) -> int:
        most = max(1, MAX_GROUP_BYTES // self._sum_bytes(strips))
        groups = ceil_div(self.oc_blocks, most)
        if self.scheme.oc_split:
            groups = ceil_div(groups, self.threads) * self.threads
        return ceil_div(self.oc_blocks, groups)

    @property
    def groups(self) -> int:
        return ceil_div(self.oc_blocks, self.group)

    @property
    def tasks(self) -> int:
        return self.strips * (self.groups if self.scheme.oc_split else 1)

    @property
    def tasks_per_thread(self) -> int:
        """The number of consecutive tasks of a thread; the last thread may have fewer."""
        return ceil_div(self.tasks, self.threads)

    @property
    def busiest_share(self) -> float:
        """The busiest thread's share of all products; strips and groups may differ in size."""
        return self._busiest(self.strips)

    def _busiest(self, strips: int) -> float:
        channels = self.oc_blocks if self.scheme.oc_split else 1
        group = self._group(strips) if self.scheme.oc_split else 1
        tasks = strips * ceil_div(channels, group)
        done: list[int] = []
        for task in (*range(0, tasks, ceil_div(tasks, self.threads)), tasks):
            before, rest = task // strips * group, task % strips
            tiles = rest * self.blocks // strips
            done.append(before * self.blocks + min(group, channels - before) * tiles)
        done[-1] = channels * self.blocks
        return max(end - start for start, end in pairwise(done)) / done[-1]

    @property
    def input_bytes(self) -> int:
        return self._input_bytes(self.blocks)

    @property
    def strip_bytes(self) -> int:
        """The bytes of the longest strip's transformed input."""
        return self._input_bytes(self.strip_blocks)

    @property
    def group_bytes(self) -> int:
        """The bytes of sums of the longest strip, for a group of blocks of output channels."""
        return self.group * self.sum_bytes

    @property
    def sum_bytes(self) -> int:
        """The bytes of sums of the longest strip, for the channels of one register tile."""
        return self._sum_bytes(self.strips)

    def _sum_bytes(self, strips: int) -> int:
        each = self.points * self.scheme.reg_oc * bytes_of(self.domain.numerics.sum)
        return self._filled(ceil_div(self.blocks, strips)) * each

    @property
    def weight_bytes(self) -> int:
        """The bytes of the stored weights, whether transformed or not."""
        if self.on_the_fly:
            taps = prod(self.workload.kernel)
            return self.oc_blocks * self.scheme.reg_oc * taps * self.chunks * self.width
        each = self.points * self.chunks * self.width * bytes_of(self.domain.numerics.weights)
        return self.oc_blocks * self.scheme.reg_oc * each

    @property
    def made_bytes(self) -> int:
        """The bytes of transformed weights that a task holds at a time, if it transforms them."""
        return self.part_chunks * self._made_bytes

    @property
    def _made_bytes(self) -> int:
        """The bytes of transformed weights of an input vector and a register tile's outputs."""
        each = self.points * self.width * self.scheme.reg_oc
        return each * bytes_of(self.domain.numerics.weights)

    def _input_bytes(self, blocks: int) -> int:
        each = self.points * self.chunks * self.width * bytes_of(self.domain.numerics.data)
        return self._filled(blocks) * each

    def strip_start(self, strip: Any) -> Any:
        return part_start(strip, self.blocks, self.strips)

    def place(self, tile: Any) -> tuple[Any, Any, Any]:
        """Return image, tile row and tile column of a tile."""
        row = tirx.floordiv(tile, self.columns)
        y, x = tirx.floormod(row, self.rows), tirx.floormod(tile, self.columns)
        return T.Bind(tirx.floordiv(row, self.rows)), y, x
