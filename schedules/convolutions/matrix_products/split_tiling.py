"""The division of a workload into register tiles of values that are split in two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.convolutions.matrix_products.tile_space import fits
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div

LINE: Final = 32
"""The number of input channels in a row of a bfloat16 tile."""
BLOCKS: Final = (LINE // 2, LINE, 2 * LINE)
"""The blocks of input channels that the kernel can read, if they make up whole lines."""
JOINED_BLOCK: Final = 4
"""The block of input channels of a picture; a line holds eight columns of the window."""
PARTS: Final = 2
"""The parts of a value: the value rounded to bfloat16, and the rounded remainder."""
PART_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class SplitTiling(MatrixTiling):
    """A `MatrixTiling` with lines of channels, whose strips always copy their pixels.

    The pixels of a 1x1 convolution form one row, whatever its stride. A picture's few channels
    leave room in a line for the columns of the window, which are copied side by side.
    """

    def __post_init__(self) -> None:
        MatrixTiling.__post_init__(self)
        block = self.scheme.ic_bn
        w, channels = self.workload, self.workload.kernel_shape[1]
        if self.joins_columns:
            assert channels <= block, self.scheme
            assert w.kernel[1] * block <= LINE, self.scheme
            assert w.dilation[1] == 1, self.scheme
            assert w.width >= block, self.scheme
        else:
            assert block in BLOCKS, self.scheme
            # There is memory beyond the last channels, but no blocks.
            assert ceil_div(channels, block) * block >= self.chunks * LINE, self.scheme
        assert fits(self.block_rows, self.block_columns, self.unit, PARTS), self.scheme

    @property
    def joins_columns(self) -> bool:
        """Whether a line holds the columns of a row of the window."""
        return self.scheme.ic_bn == JOINED_BLOCK

    @property
    def window_columns(self) -> int:
        return 1 if self.joins_columns else self.workload.kernel[1]

    @property
    def column_step(self) -> int:
        return 1 if self.is_flat or self.joins_columns else self.workload.stride[1]

    @property
    def line_columns(self) -> int:
        return self.workload.out_width if self.joins_columns else self.strip_columns

    @property
    def is_flat(self) -> bool:
        w = self.workload
        return w.kernel == (1, 1) and not any(w.padding) and not reads_outside(w)

    @property
    def copies(self) -> bool:
        return not self.is_flat

    @property
    def chunks(self) -> int:
        return 1 if self.joins_columns else ceil_div(self.workload.kernel_shape[1], LINE)

    @property
    def steps(self) -> int:
        return 1

    @property
    def depth(self) -> int:
        return LINE

    @property
    def element(self) -> int:
        return PART_BYTES

    @property
    def chunk_bytes(self) -> int:
        return LINE * PARTS * PART_BYTES

    @property
    def row_stride(self) -> int:
        return self.column_step * LINE * PART_BYTES

    @property
    def block_bytes(self) -> int:
        taps = self.workload.kernel[0] * self.window_columns
        return self.chunks * taps * self.chunk_bytes * self.scheme.reg_oc

    @property
    def strips(self) -> int:
        """The number of strips; the split pixels of each stay in half of a core's L2."""
        w = self.workload
        pixels = self.columns if self.is_flat else w.out_height * w.stride[0] * self.line_columns
        least = ceil_div(pixels * self.chunks * self.chunk_bytes, self.l2 // 2)
        return min(self.tiles, max(least, int(MatrixTiling.strips.__get__(self))))

    @property
    def groups(self) -> int:
        """The number of groups of output channels; each splits the strip again."""
        if self.workload.batch * self.strips >= self.threads:
            return 1
        return min(self.oc_blocks, self.threads)

    @property
    def copied_pixels(self) -> int:
        if self.is_flat:
            return min(self.strip_tiles * self.scheme.reg_n, self.columns)
        return self.strip_rows * self.line_columns
