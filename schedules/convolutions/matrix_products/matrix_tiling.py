"""The division of a workload into register tiles of a matrix unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.dot_products.dot_tiling import DotTiling
from neocpu.schedules.convolutions.matrix_products.tile_space import fits
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import MatrixScheme

UNROLLED_STEPS: Final = 6
"""The most lines of channels without a branch between them, for tiles, if they divide all lines."""


@dataclass(frozen=True, slots=True)
class MatrixTiling(DotTiling):
    """A `DotTiling` whose register tiles consist of whole blocks of the unit."""

    def __post_init__(self) -> None:
        DotTiling.__post_init__(self)
        s, made = self.scheme, self.unit.instruction
        # Records may have arbitrary schemes.
        assert s.reg_n == self.block_rows * self.rows_of_block, s
        assert made.in_tiles or self.rows_of_block == made.rows, s
        assert s.reg_oc % made.columns == s.reg_oc % self.unit.lanes == 0, s
        if isinstance(s, MatrixScheme):
            assert s.ic_bn % (self.depth if made.in_tiles else self.unit.group) == 0, s
            assert s.dot == self.unit.group, s
        assert fits(self.block_rows, self.block_columns, self.unit), s

    @property
    def block_rows(self) -> int:
        """The number of blocks of a register tile along its pixels: as few as possible."""
        return ceil_div(self.scheme.reg_n, self.unit.instruction.rows)

    @property
    def rows_of_block(self) -> int:
        """The number of pixels of a block; a block of two has both or none."""
        return ceil_div(self.scheme.reg_n, self.block_rows)

    @property
    def block_columns(self) -> int:
        return self.scheme.reg_oc // self.unit.instruction.columns

    @property
    def depth(self) -> int:
        """The number of input channels whose products an instruction adds to a sum."""
        return min(self.scheme.ic_bn, self.unit.instruction.depth or self.unit.group)

    @property
    def steps(self) -> int:
        """The number of instructions along the channels of an input block."""
        return self.scheme.ic_bn // self.depth

    @property
    def is_short(self) -> bool:
        """Whether loops stay loops: for tiles all do, because LLVM would keep all addresses."""
        return self.unit.instruction.in_tiles or bool(DotTiling.is_short.__get__(self))

    @property
    def window_columns(self) -> int:
        """The number of columns of the window that have separate products."""
        return self.workload.kernel[1]

    @property
    def column_step(self) -> int:
        """The number of pixels of a strip from one output column to the next."""
        return self.workload.stride[1]

    @property
    def unrolled_chunks(self) -> int:
        """The number of blocks of input channels without a branch between them."""
        return _divisor(self.chunks, UNROLLED_STEPS // (self.steps * self.window_columns))

    @property
    def unrolled_steps(self) -> int:
        """The number of lines of a block of input channels without a branch between them."""
        return _divisor(self.steps, UNROLLED_STEPS)

    @property
    def data_bytes(self) -> int:
        w = self.workload
        beside = (self.window_columns - 1) * w.dilation[1]
        columns = (self.scheme.reg_n - 1) * self.column_step + beside + 1
        return self.chunks * self.chunk_bytes * w.kernel[0] * columns

    @property
    def row_stride(self) -> int:
        """The bytes between adjacent pixels' data of one block of channels."""
        return self.column_step * self.chunk_bytes

    @property
    def chunk_bytes(self) -> int:
        return self.scheme.ic_bn * self.element

    @property
    def element(self) -> int:
        return bytes_of(self.workload.numerics.data)


def _divisor(number: int, most: int) -> int:
    return max((n for n in range(1, most + 1) if number % n == 0), default=1)
