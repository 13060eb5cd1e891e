"""The division of a workload into register tiles of a matrix unit."""

from __future__ import annotations

from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.dot_products.dot_tiling import STRIPS_PER_THREAD, DotTiling
from neocpu.schedules.convolutions.matrix_products.joined_rows import JoinedRows
from neocpu.schedules.convolutions.matrix_products.typical_choices import TypicalChoices
from neocpu.schedules.isa.catalogue import ROW_BYTES
from neocpu.schedules.tir.tiles import LINE, Grid
from neocpu.schedules.vocabulary.dot_unit import TILES, DotUnit
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import BlockScheme, MatrixScheme
from neocpu.schedules.vocabulary.traced_sizes import (
    larger,
    least_of,
    smaller,
    typical_of,
    varies,
)
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

MOST_VISITS: Final = 16  # register tiles for which prefetching a block's weights pays
LEAST_BYTES: Final = 8192  # of a block's weights to prefetch
STRIP_TILES: Final = 8  # at least, of register tiles, if there are as many for each thread
UNROLLED_STEPS: Final = 6  # at most, of lines, without a branch between them, if they divide all
BLOCKS: Final = (LINE // 2, LINE, 2 * LINE)  # that the kernel can read, if they make up whole lines
JOINED_BLOCK: Final = 4  # input channels of a picture; a line holds several columns of the window
PART_BYTES: Final = 2


class MatrixTiling(DotTiling):
    """A `DotTiling` whose register tiles, of `data_bytes`, consist of whole blocks of the unit.

    A picture's few channels leave room for the window's columns in a line of a tile.
    """

    parts = 1
    """The number of parts of a value that are multiplied separately."""

    typical: TypicalChoices | None = None
    """Choices for images of any size; None if the workload is of one size."""

    def __init__(
        self,
        workload: Conv2dWorkload,
        scheme: BlockScheme,
        unit: DotUnit,
        l2: int,
        threads: int = 1,
    ) -> None:
        if varies(workload.height, workload.width) and unit.instruction.in_tiles:
            typical = type(self)(typical_of(workload), scheme, unit, l2, threads)
            self.typical = typical.choices(least_of(workload))
        super().__init__(workload, scheme, unit, l2, threads)

    def choices(self, least: Conv2dWorkload) -> TypicalChoices:
        """Return the choices of this workload, for images of any size from ``least`` on."""
        # Pixels that are read where they lie must fill a register tile; joined rows are copied.
        pixels = least.out_height * least.out_width if self.is_flat else 0
        in_place = self.parts == 1 and not self.copies
        return TypicalChoices(
            joins_rows=self.joined is not None or (in_place and pixels < self.scheme.reg_n),
            prefetched_lines=self.prefetched_lines,
        )

    def _check(self) -> None:
        s, unit, made = self.scheme, self.unit, self.unit.instruction
        assert s.reg_n == self.block_rows * self.rows_of_block, s
        assert made.in_tiles or self.rows_of_block == made.rows, s
        assert s.reg_oc % made.columns == s.reg_oc % unit.lanes == 0, s
        if isinstance(s, MatrixScheme):
            assert s.dot == unit.group, s
            if not self.joins_columns:
                assert s.ic_bn % (self.depth if made.in_tiles else unit.group) == 0, s
                lines = ceil_div(self.workload.kernel_shape[1], self.depth)
                assert not made.in_tiles or self.chunks * self.steps == lines, s
        if self.joins_columns:
            w = self.workload
            assert w.kernel_shape[1] <= s.ic_bn <= w.width, s
            assert w.kernel[1] * s.ic_bn <= self.line, s
            assert w.dilation[1] == 1, s
        assert made.in_tiles or s.reg_oh == 1, s
        ins, outs = self.workload.kernel_shape[1], self.workload.out_channels
        if (groups := self.workload.groups) > 1:
            assert made.in_tiles, s
            assert ins % s.ic_bn == 0, s
            assert outs % groups == (outs // groups) % s.reg_oc == 0, s
        assert fits(self.pixel_blocks, self.block_columns, unit), s

    @property
    def overhangs(self) -> bool:
        # Pixels that are read where they lie have nothing behind the last one.
        return self.typical is not None and (self.copies or self.parts > 1)

    def _reading(self) -> tuple[bool, bool]:
        copies, is_flat = super()._reading()
        in_tiles = self.unit.instruction.in_tiles
        # The elements of a row of a tile; whether a window's row is in one, and rows are joined.
        self.line = ROW_BYTES // self._element
        self.joins_columns = in_tiles and self.scheme.ic_bn == JOINED_BLOCK
        self.joined = self._joined_rows() if in_tiles and not self.joins_columns else None
        return copies or self.joins_columns or self.joined is not None, is_flat or bool(self.joined)

    def _joined_rows(self) -> JoinedRows | None:
        if self.typical is None:
            return JoinedRows.if_fewer(self.workload)
        return JoinedRows.of(self.workload) if self.typical.joins_rows else None

    @property
    def _element(self) -> int:
        """The bytes of an element in a tile."""
        return bytes_of(self.workload.numerics.data)

    def _columns(self) -> int:
        return self.joined.positions(self.workload) if self.joined else super()._columns()

    def _strip_rows(self) -> int:
        if self.typical is not None:
            return self._overhanging_rows()
        if self.joined is None:
            return super()._strip_rows()
        positions = min(self.strip_tiles * self.scheme.reg_n, self.columns)
        rows = ceil_div(positions - 1, self.joined.pitch) + 1
        return min(rows, self.workload.out_height) + self.joined.below

    def _overhanging_rows(self) -> int:
        """Return the rows of a strip whose tiles may overhang."""
        w, s = self.workload, self.scheme
        if self.joined is None:
            rows = self.strip_tiles * s.reg_oh
            return (rows - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1
        rows = ceil_div(self.strip_tiles * s.reg_n - 1, self.joined.pitch) + 1
        return rows + self.joined.below

    @property
    def slack(self) -> int:
        """The pixels behind a strip's copy that an overhanging register tile reads."""
        return self.scheme.reg_n * self.column_step

    @property
    def line_columns(self) -> int:
        """The columns of a strip that are copied; the lines, if they hold rows of windows."""
        return self.workload.out_width if self.joins_columns else self.strip_columns

    @property
    def copied_pixels(self) -> int:
        """The most pixels that a task copies."""
        if self.joined is None:
            return self.strip_rows * self.line_columns
        down, across = self.joined.phases
        return self.strip_rows * self.joined.pitch * down * across

    def _divide_channels(self) -> None:
        super()._divide_channels()
        w, s, made = self.workload, self.scheme, self.unit.instruction
        self.block_rows = ceil_div(s.reg_n, made.rows)
        self.rows_of_block = ceil_div(s.reg_n, self.block_rows)
        self.pixel_blocks = s.reg_oh * self.block_rows
        self.block_columns = s.reg_oc // made.columns
        self._divide_lines()
        most = UNROLLED_STEPS // (self.steps * self.window_columns)
        self.unrolled_chunks = _divisor(self.chunks, most)
        self.unrolled_steps = _divisor(self.steps, UNROLLED_STEPS)
        columns = (s.reg_n - 1) * self.column_step + (self.window_columns - 1) * w.dilation[1] + 1
        rows = min(w.kernel[0] * s.reg_oh, (s.reg_oh - 1) * w.stride[0] + w.kernel[0])
        self.data_bytes = self.chunks * self.chunk_bytes * rows * columns

    def _divide_lines(self) -> None:
        w, s = self.workload, self.scheme
        block = self.line if self.joins_columns else s.ic_bn
        # Input channels whose products an instruction adds to a sum; instructions along a block.
        self.depth = min(block, self.unit.instruction.depth or self.unit.group)
        self.steps = block // self.depth
        # The window's columns of separate products; pixels of a strip per output column.
        self.window_columns, self.column_step = w.kernel[1], w.stride[1]
        if self.joins_columns:
            self.window_columns = self.column_step = 1
            self.block_bytes = w.kernel[0] * ROW_BYTES * s.reg_oc
        # Bytes of an element, of a block of a pixel's channels, and between adjacent pixels'.
        self.element = self._element
        self.chunk_bytes = block * self.element
        self.row_stride = (1 if self.joined else self.column_step) * self.chunk_bytes

    def _strips(self) -> int:
        """Return one strip if threads share channels, else some for each that reuse weights."""
        if not self.unit.instruction.in_tiles:
            return super()._strips()
        each = STRIP_TILES if self.is_flat else ceil_div(STRIP_TILES, self.column_tiles)
        most = larger(1, self.tiles // each)
        per_thread = smaller(STRIPS_PER_THREAD, larger(1, most // self.threads))
        strips = smaller(self.tiles, per_thread * self.threads)
        return strips - (strips - 1) * self.shares_channels

    def _groups(self) -> int:
        """Return the groups of output channels: one, if strips suffice for the threads."""
        most = min(self.oc_blocks, self.threads)
        return most - (most - 1) * smaller(1, self.workload.batch * self.strips // self.threads)

    @property
    def grid(self) -> Grid:
        """The tiles of a register tile."""
        down, across = self.pixel_blocks, self.block_columns
        return Grid(down, across, down * across)

    @property
    def shares_channels(self) -> int:
        """1 if threads share output channels and not pixels: each then reads fewer weights."""
        w = self.workload
        data = w.height * w.width * self.image_chunks * self.chunk_bytes
        return smaller(1, self.oc_blocks * self.block_bytes // (data + 1))

    @property
    def turns(self) -> int:
        """The turns of a register tile's loops."""
        rows = 1 if self.scheme.unroll_ker else self.workload.kernel[0]
        return self.chunks // self.unrolled_chunks * (self.steps // self.unrolled_steps) * rows

    @property
    def prefetched_lines(self) -> int:
        """The cache lines of the next block's weights to prefetch in each turn; 0 if many register
        tiles share a block's weights, or if these are few.
        """
        if self.typical is not None:
            return self.typical.prefetched_lines
        visits = self.strip_tiles * (1 if self.is_flat else self.column_tiles)
        is_small = visits > MOST_VISITS or self.block_bytes < LEAST_BYTES
        if is_small or self.oc_blocks == self.groups:
            return 0
        return ceil_div(self.block_bytes, ROW_BYTES * visits * self.turns)

    @property
    def is_short(self) -> bool:
        """Whether loops stay loops: for tiles all do, because LLVM would keep all addresses."""
        return self.unit.instruction.in_tiles or super().is_short


def fits(down: int, across: int, unit: DotUnit, parts: int = 1) -> bool:
    """Return whether the registers hold these rows and columns of sums and a step's operands."""
    if unit.instruction.in_tiles:
        return down * across + down + (across if parts > 1 else 1) <= TILES
    return down * across + down + 2 <= unit.registers


def _divisor(number: int, most: int) -> int:
    return max((n for n in range(1, most + 1) if number % n == 0), default=1)
