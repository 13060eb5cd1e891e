"""The division of a workload into register tiles of a matrix unit."""

from __future__ import annotations

from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.dot_products.dot_tiling import DotTiling
from neocpu.schedules.vocabulary.dot_unit import TILES, DotUnit
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import MatrixScheme

UNROLLED_STEPS: Final = 6  # at most, of lines, without a branch between them, if they divide all
LINE: Final = 32  # input channels in a row of a bfloat16 tile
BLOCKS: Final = (LINE // 2, LINE, 2 * LINE)  # that the kernel can read, if they make up whole lines
JOINED_BLOCK: Final = 4  # input channels of a picture; a line holds eight columns of the window
PARTS: Final = 2  # of a value: the value rounded to bfloat16, and the rounded remainder
PART_BYTES: Final = 2


class MatrixTiling(DotTiling):
    """A `DotTiling` whose register tiles, of `data_bytes`, consist of whole blocks of the unit."""

    def _check(self) -> None:
        s, unit, made = self.scheme, self.unit, self.unit.instruction
        assert s.reg_n == self.block_rows * self.rows_of_block, s
        assert made.in_tiles or self.rows_of_block == made.rows, s
        assert s.reg_oc % made.columns == s.reg_oc % unit.lanes == 0, s
        if isinstance(s, MatrixScheme):
            assert s.ic_bn % (self.depth if made.in_tiles else unit.group) == 0, s
            assert s.dot == unit.group, s
        assert fits(self.block_rows, self.block_columns, unit), s

    def _divide_channels(self) -> None:
        super()._divide_channels()
        w, s, made = self.workload, self.scheme, self.unit.instruction
        self.block_rows = ceil_div(s.reg_n, made.rows)
        self.rows_of_block = ceil_div(s.reg_n, self.block_rows)
        self.block_columns = s.reg_oc // made.columns
        self._divide_lines()
        most = UNROLLED_STEPS // (self.steps * self.window_columns)
        self.unrolled_chunks = _divisor(self.chunks, most)
        self.unrolled_steps = _divisor(self.steps, UNROLLED_STEPS)
        columns = (s.reg_n - 1) * self.column_step + (self.window_columns - 1) * w.dilation[1] + 1
        self.data_bytes = self.chunks * self.chunk_bytes * w.kernel[0] * columns

    def _divide_lines(self) -> None:
        w, s = self.workload, self.scheme
        # Input channels whose products an instruction adds to a sum; instructions along a block.
        self.depth = min(s.ic_bn, self.unit.instruction.depth or self.unit.group)
        self.steps = s.ic_bn // self.depth
        # The window's columns of separate products; pixels of a strip per output column.
        self.window_columns, self.column_step = w.kernel[1], w.stride[1]
        # Bytes of an element, of a block of a pixel's channels, and between adjacent pixels'.
        self.element = bytes_of(w.numerics.data)
        self.chunk_bytes = s.ic_bn * self.element
        self.row_stride = self.column_step * self.chunk_bytes

    @property
    def is_short(self) -> bool:
        """Whether loops stay loops: for tiles all do, because LLVM would keep all addresses."""
        return self.unit.instruction.in_tiles or super().is_short


class SplitTiling(MatrixTiling):
    """A `MatrixTiling` with lines of channels, whose strips always copy their pixels, as one row in
    a 1x1 convolution. A picture's few channels leave room for the window's columns in a line.
    """

    def _check(self) -> None:
        super()._check()
        w, scheme = self.workload, self.scheme
        block, channels = scheme.ic_bn, w.kernel_shape[1]
        if self.joins_columns:
            assert channels <= block <= w.width, scheme
            assert w.kernel[1] * block <= LINE, scheme
            assert w.dilation[1] == 1, scheme
        else:
            assert block in BLOCKS, scheme
            # There is memory beyond the last channels, but no blocks.
            assert ceil_div(channels, block) * block >= self.chunks * LINE, scheme
        assert fits(self.block_rows, self.block_columns, self.unit, PARTS), scheme

    @property
    def copied_pixels(self) -> int:
        """The most pixels that a task splits."""
        in_row = min(self.strip_tiles * self.scheme.reg_n, self.columns)
        return in_row if self.is_flat else self.strip_rows * self.line_columns

    def _reading(self) -> tuple[bool, bool]:
        w = self.workload
        is_flat = w.kernel == (1, 1) and not any(w.padding) and not reads_outside(w)
        return not is_flat, is_flat

    def _divide_lines(self) -> None:
        w, s = self.workload, self.scheme
        joins = self.joins_columns = s.ic_bn == JOINED_BLOCK  # a row of the window is in one line
        self.line_columns = w.out_width if joins else self.strip_columns
        self.chunks = 1 if joins else ceil_div(w.kernel_shape[1], LINE)
        self.steps, self.depth, self.element = 1, LINE, PART_BYTES
        self.window_columns = 1 if joins else w.kernel[1]
        self.column_step = 1 if self.is_flat or joins else w.stride[1]
        self.chunk_bytes = LINE * PARTS * PART_BYTES
        self.row_stride = self.column_step * LINE * PART_BYTES
        taps = w.kernel[0] * self.window_columns
        self.block_bytes = self.chunks * taps * self.chunk_bytes * s.reg_oc

    def _strips(self) -> int:
        """Return as many strips as keep the split pixels of each in half of a core's L2."""
        w = self.workload
        pixels = self.columns if self.is_flat else w.out_height * w.stride[0] * self.line_columns
        least = ceil_div(pixels * self.chunks * self.chunk_bytes, self.l2 // 2)
        return min(self.tiles, max(least, super()._strips()))

    def _groups(self) -> int:
        """Return the groups of output channels; each splits the strip again."""
        enough = self.workload.batch * self.strips >= self.threads
        return 1 if enough else min(self.oc_blocks, self.threads)


def fits(down: int, across: int, unit: DotUnit, parts: int = 1) -> bool:
    """Return whether the registers hold these rows and columns of sums and a step's operands."""
    if unit.instruction.in_tiles:
        return down * across + down + (across if parts > 1 else 1) <= TILES
    return down * across + down + 2 <= unit.registers


def _divisor(number: int, most: int) -> int:
    return max((n for n in range(1, most + 1) if number % n == 0), default=1)
