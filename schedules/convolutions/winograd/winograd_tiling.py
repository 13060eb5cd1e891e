"""How a Winograd convolution falls into tiles, strips, groups of channels and tasks."""

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

# Sums that a task may keep, in bytes. Beyond L2 they leave it once and come back once, in order,
# which costs less than to read the transformed input again.
MAX_GROUP_BYTES = 1 << 20
# Weights that a task keeps at a time, of those that it transforms itself, where it can add sums up
# in parts: beside what they are multiplied with they are to stay in L2.
MAX_MADE_BYTES = 3 << 16


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a workload falls into tiles, register tiles and strips.

    The tiles of all images, row by row, are one sequence: register tiles and strips may cross from
    one tile row or image to the next, so that only the very last register tile overhangs.

    A dilated convolution is as many undilated ones of each image as the product of its dilations:
    rows and columns that are ``dilation`` apart see each other alone. Their tiles come one after
    the other.

    Attributes
    ----------
    lanes : int
        Output channels of one vector of sums.
    threads : int
        Threads the strips are shared between.
    domain : Domain
        What transformed data and weights are made of.
    filters : tuple of Filter
        F(m, r) down the image and across it.
    edges : EdgeTiles or None
        The regions of whole and smaller tiles, where the scheme has smaller ones.
    tiles : int
        Tiles of all images.
    strips : int
        Strips of the image: as many as ``strip`` asks for, and where a task takes all channels
        of one, a multiple of the threads; where it does not, more if the groups of channels are too
        few for the threads; no more than register tiles.
    """

    workload: Conv2dWorkload
    scheme: WinogradScheme
    lanes: int
    threads: int = 1
    # Fields, for estimates ask for them dozens of times each.
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
        """Whether tasks transform the weights."""
        return self.scheme.on_the_fly and self.scheme.oc_split and self.domain.is_exact

    @property
    def rows(self) -> int:
        """Tile rows of an image."""
        return self._phases(0) * self._phase_tiles(0)

    @property
    def columns(self) -> int:
        """Tiles of a tile row."""
        return self._phases(1) * self._phase_tiles(1)

    def corner(self, tile: Any, *, of_input: bool = False) -> tuple[Any, Any, Any]:
        """Image, and first output pixel, of a tile; or the first that it reads, but for padding."""
        image, row, column = self.place(tile)
        down, across = (f.step if of_input else f.tile for f in self.filters)
        return image, self.first(0, row, down), self.first(1, column, across)

    def _phases(self, axis: int) -> int:
        """Undilated convolutions side by side along an axis."""
        return min(self.workload.dilation[axis], self._length(axis))

    def _phase_tiles(self, axis: int) -> int:
        """Tiles of the longest of them."""
        length = ceil_div(self._length(axis), self.workload.dilation[axis])
        return ceil_div(length, self.filters[axis].tile)

    def _length(self, axis: int) -> int:
        return (self.workload.out_height, self.workload.out_width)[axis]

    def first(self, axis: int, number: Any, width: int) -> Any:
        """First pixel along an axis of a tile that is ``width`` further than the one before."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles(axis)
        if dilation == 1:
            return number * width
        return tirx.floormod(number, each) * (width * dilation) + tirx.floordiv(number, each)

    def last(self, axis: int) -> int:
        """Return the first pixel that the last tile reads along an axis, but for padding."""
        dilation, each = self.workload.dilation[axis], self._phase_tiles(axis)
        return (each - 1) * self.filters[axis].step * dilation + self._phases(axis) - 1

    def point(self, row: Any, column: Any) -> Any:
        """Return which of a tile's points the product of a row and a column is."""
        return row * self.filters[1].span + column

    @property
    def points(self) -> int:
        """Products of a tile, an input channel and an output channel."""
        down, across = self.filters
        return down.span * across.span

    @property
    def width(self) -> int:
        """Input channels of one vector: as many as it holds, or as blocks of the layout allow."""
        return gcd(self.scheme.ic_bn, self.lanes * self.domain.group)

    @property
    def chunks(self) -> int:
        """Vectors of input channels."""
        return ceil_div(self.workload.in_channels, self.width)

    @property
    def parts(self) -> int:
        """Parts in which sums over input channels are made, of `part_chunks` each but the last."""
        return ceil_div(self.chunks, self.part_chunks)

    @property
    def part_chunks(self) -> int:
        """Vectors of input channels whose products are added up together.

        Register tiles of whole and of smaller tiles may overlap: what they make is not added to.
        """
        if self.on_the_fly and self.edges is None:
            return min(self.chunks, max(1, MAX_MADE_BYTES // self._made_bytes))
        return scaled_integers.PART // self.width if self.domain.is_scaled else self.chunks

    @property
    def chunk_steps(self) -> int:
        """Steps of a product that a vector of input channels makes."""
        return self.width // self.domain.group

    @property
    def oc_vectors(self) -> int:
        """Vectors of output channels, with those that only pad the last block of the layout."""
        return ceil_div(self.workload.out_channels, self.scheme.oc_bn) * (
            self.scheme.oc_bn // self.lanes
        )

    @property
    def oc_blocks(self) -> int:
        """Register tiles along the output channels; the last may overhang."""
        return ceil_div(self.oc_vectors * self.lanes, self.scheme.reg_oc)

    @property
    def blocks(self) -> int:
        """Register tiles along the image; the last may overhang."""
        return ceil_div(self.tiles, self.scheme.reg_n)

    def register_tiles(self, reg_n: int) -> list[tuple[int, int, int]]:
        """Return for so many tiles at most: points, register tiles of each, and their tiles."""
        if self.edges is None:
            return [(self.points, ceil_div(self.tiles, reg_n), reg_n)]
        return [
            (points.count, *register_tiles(points.tiles, reg_n)) for points in self.edges.classes
        ]

    @property
    def strip_blocks(self) -> int:
        """Register tiles of the longest strip."""
        return ceil_div(self.blocks, self.strips)

    @property
    def strip_tiles(self) -> int:
        """Tiles of the longest strip, with those that only fill its last register tile."""
        return self._filled(self.strip_blocks)

    def _filled(self, blocks: int) -> int:
        """Tiles of so many register tiles; of whole and smaller ones there are no others."""
        return self.tiles if self.edges else blocks * self.scheme.reg_n

    @property
    def group(self) -> int:
        """Blocks of output channels that a task multiplies a point's input with, one by one.

        As many as there are, or as a thread's share, within `MAX_GROUP_BYTES` of sums.
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
        """Groups of blocks of output channels."""
        return ceil_div(self.oc_blocks, self.group)

    @property
    def tasks(self) -> int:
        """Tasks of the loop that multiplies."""
        return self.strips * (self.groups if self.scheme.oc_split else 1)

    @property
    def tasks_per_thread(self) -> int:
        """Consecutive tasks a thread gets, the last ones less."""
        return ceil_div(self.tasks, self.threads)

    @property
    def busiest_share(self) -> float:
        """Of all products, what the busiest thread computes: strips and groups may differ."""
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
        """Transformed input of the whole image."""
        return self._input_bytes(self.blocks)

    @property
    def strip_bytes(self) -> int:
        """Transformed input of the longest strip."""
        return self._input_bytes(self.strip_blocks)

    @property
    def group_bytes(self) -> int:
        """Sums of the longest strip, for a group of blocks of output channels."""
        return self.group * self.sum_bytes

    @property
    def sum_bytes(self) -> int:
        """Sums of the longest strip, for the channels of one register tile."""
        return self._sum_bytes(self.strips)

    def _sum_bytes(self, strips: int) -> int:
        each = self.points * self.scheme.reg_oc * bytes_of(self.domain.numerics.sum)
        return self._filled(ceil_div(self.blocks, strips)) * each

    @property
    def weight_bytes(self) -> int:
        """Weights as they are kept: transformed ones, or bytes."""
        if self.on_the_fly:
            taps = prod(self.workload.kernel)
            return self.oc_blocks * self.scheme.reg_oc * taps * self.chunks * self.width
        each = self.points * self.chunks * self.width * bytes_of(self.domain.numerics.weights)
        return self.oc_blocks * self.scheme.reg_oc * each

    @property
    def made_bytes(self) -> int:
        """Weights that a task that transforms them has at a time."""
        return self.part_chunks * self._made_bytes

    @property
    def _made_bytes(self) -> int:
        """Transformed weights of a vector of input channels and a register tile's outputs."""
        each = self.points * self.width * self.scheme.reg_oc
        return each * bytes_of(self.domain.numerics.weights)

    def _input_bytes(self, blocks: int) -> int:
        each = self.points * self.chunks * self.width * bytes_of(self.domain.numerics.data)
        return self._filled(blocks) * each

    def strip_start(self, strip: Any) -> Any:
        """First register tile of a strip."""
        return part_start(strip, self.blocks, self.strips)

    def place(self, tile: Any) -> tuple[Any, Any, Any]:
        """Image, tile row and tile column of a tile."""
        row = tirx.floordiv(tile, self.columns)
        y, x = tirx.floormod(row, self.rows), tirx.floormod(tile, self.columns)
        return T.Bind(tirx.floordiv(row, self.rows)), y, x
