"""The division of a float32 workload into register tiles whose values are in two parts."""

from __future__ import annotations

from neocpu.schedules.convolutions.matrix_products.matrix_tiling import (
    BLOCKS,
    PART_BYTES,
    MatrixTiling,
    fits,
)
from neocpu.schedules.tir.tiles import LINE, PARTS
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.traced_sizes import larger, smaller
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def holds_lines(workload: Conv2dWorkload, block: int) -> bool:
    """Return whether a block holds all channels of a pixel, as rows of matrices do, and these are
    whole lines.
    """
    return block == workload.image_channels and block % LINE == 0


class SplitTiling(MatrixTiling):
    """A `MatrixTiling` with lines of channels, whose strips always copy their pixels, as one row in
    a 1x1 convolution.
    """

    parts = PARTS

    def _check(self) -> None:
        super()._check()
        w, scheme = self.workload, self.scheme
        if not self.joins_columns:
            block = scheme.ic_bn
            assert block in BLOCKS or holds_lines(w, block), scheme
            # There is memory beyond the last channels, but no blocks.
            assert ceil_div(w.kernel_shape[1], block) * block >= self.chunks * LINE, scheme
        assert fits(self.pixel_blocks, self.block_columns, self.unit, PARTS), scheme

    @property
    def copied_pixels(self) -> int:
        if not self.is_flat or self.joined:
            return super().copied_pixels
        in_row = self.strip_tiles * self.scheme.reg_n
        return in_row if self.overhangs else min(in_row, self.columns)

    def _reading(self) -> tuple[bool, bool]:
        super()._reading()
        w = self.workload
        is_flat = w.kernel == (1, 1) and not any(w.padding) and not reads_outside(w)
        self.joined = None if is_flat else self.joined
        return not is_flat, is_flat or bool(self.joined)

    @property
    def _element(self) -> int:
        return PART_BYTES

    def _divide_lines(self) -> None:
        w, s = self.workload, self.scheme
        joins = self.joins_columns
        self.chunks = 1 if joins else ceil_div(w.kernel_shape[1], LINE)
        self.steps, self.depth, self.element = 1, LINE, PART_BYTES
        self.window_columns = 1 if joins else w.kernel[1]
        in_row = self.is_flat and not self.joined
        self.column_step = 1 if in_row or joins else w.stride[1]
        self.chunk_bytes = LINE * PARTS * PART_BYTES
        self.row_stride = (1 if self.joined else self.column_step) * LINE * PART_BYTES
        taps = w.kernel[0] * self.window_columns
        self.block_bytes = self.chunks * taps * self.chunk_bytes * s.reg_oc

    def _strips(self) -> int:
        """Return as many strips as keep the split pixels of each in half of a core's L2."""
        w = self.workload
        in_row = self.is_flat and not self.joined
        pixels = self.columns if in_row else w.out_height * w.stride[0] * self.line_columns
        least = ceil_div(pixels * self.chunks * self.chunk_bytes, self.l2 // 2)
        return smaller(self.tiles, larger(least, super()._strips()))
