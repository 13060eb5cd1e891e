"""The division of a convolution by dot products into register tiles and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import BlockScheme, DotScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most groups of products in a row: the number of NEON's lanes.
UNROLLED_GROUPS = 4
AVX512_BYTES = 64
# The most dot products of loops that LLVM may unroll completely.
MAX_UNROLLED_PRODUCTS = 256
# The number of strips of rows per thread: enough to be about equal, and few enough that the
# weights, which each strip reads, mostly come from L1.
STRIPS_PER_THREAD = 4
# The most weights, in L2 caches, with which a thread takes rows and not channels.
ROWS_FIRST_L2_SHARE = 1.25


@dataclass(frozen=True, slots=True)
class DotTiling:
    """The register tiles of a workload, in strips and groups of output channels.

    A 1x1 convolution whose pixels lie side by side treats the image as one row. The last tiles of a
    row and of an image move back, so that they end with it. ``l2`` is in bytes.
    """

    workload: Conv2dWorkload
    scheme: BlockScheme | DotScheme
    unit: DotUnit
    l2: int
    threads: int = 1

    def __post_init__(self) -> None:
        # Tiles move back, but not before the beginning of the output.
        assert self.scheme.reg_oh <= self.rows, self
        assert self.scheme.reg_n <= self.columns, self

    @property
    def is_flat(self) -> bool:
        """Whether an image's pixels form one row."""
        w = self.workload
        return w.kernel == (1, 1) and w.stride == (1, 1) and not self.copies

    @property
    def copies(self) -> bool:
        """Whether tasks copy their input with its border of depth slices and pixels."""
        return any(self.workload.padding) or reads_outside(self.workload)

    @property
    def rows(self) -> int:
        return 1 if self.is_flat else self.workload.out_height

    @property
    def columns(self) -> int:
        w = self.workload
        return w.out_height * w.out_width if self.is_flat else w.out_width

    @property
    def row_tiles(self) -> int:
        return ceil_div(self.rows, self.scheme.reg_oh)

    @property
    def column_tiles(self) -> int:
        return ceil_div(self.columns, self.scheme.reg_n)

    @property
    def tiles(self) -> int:
        """The number of units of a strip: rows of register tiles, or tiles of the one row."""
        return self.column_tiles if self.is_flat else self.row_tiles

    @property
    def vectors(self) -> int:
        """The number of vectors of sums for each pixel of a register tile."""
        return self.scheme.reg_oc // self.unit.lanes

    @property
    def chunks(self) -> int:
        """The number of blocks of input channels that are added up, within a group."""
        return ceil_div(self.workload.kernel_shape[1], self.scheme.ic_bn)

    @property
    def image_chunks(self) -> int:
        return self.chunks * self.workload.groups

    @property
    def chunk_groups(self) -> int:
        """The number of groups of products in a block of input channels, at one tap."""
        return self.scheme.ic_bn // self.unit.group

    @property
    def unrolled_groups(self) -> int:
        """The number of groups of products without a branch between them."""
        s, step = self.scheme, self.scheme.step_groups
        if self.unit.intrinsic and self.unit.vector_bytes == AVX512_BYTES:
            # LLVM loads weights of the next groups ahead for some CPUs, and spills sums for them.
            sums, ahead = s.reg_oh * s.reg_n * self.vectors, max(2 * self.vectors, UNROLLED_GROUPS)
            if sums + ahead + 1 > self.unit.registers:
                return step
        return step * gcd(self.chunk_groups // step, max(1, UNROLLED_GROUPS // step))

    @property
    def is_short(self) -> bool:
        """Whether LLVM would unroll a register tile's loops; on x86, the innermost is enough."""
        s, (kernel_h, kernel_w) = self.scheme, self.workload.kernel
        window = (1, 1) if s.unroll_ker else (kernel_h, kernel_w)
        loops = (self.chunks, *window, self.chunk_groups // self.unrolled_groups)
        innermost = next((extent for extent in reversed(loops) if extent > 1), 1)
        steps = self.unrolled_groups * (kernel_h * kernel_w if s.unroll_ker else 1)
        steps *= prod(loops) if self.unit.by_lane else innermost
        return steps * s.reg_oh * s.reg_n * self.vectors <= MAX_UNROLLED_PRODUCTS

    @property
    def data_lanes(self) -> int:
        """The groups of a pixel that one load brings: several if products take a lane of it."""
        return gcd(self.chunk_groups, self.unit.lanes) if self.unit.by_lane else 1

    @property
    def oc_blocks(self) -> int:
        return output_blocks(self.workload, self.scheme)

    @property
    def block_bytes(self) -> int:
        """The bytes of weights of one register tile."""
        taps = self.workload.kernel[0] * self.workload.kernel[1]
        each = self.scheme.reg_oc * bytes_of(self.workload.numerics.weights)
        return self.chunks * self.scheme.ic_bn * taps * each

    @property
    def strips(self) -> int:
        """The number of strips that share an image's tiles.

        There is only one strip if the weights are too large to be read more than once.
        """
        if self.oc_blocks * self.block_bytes > ROWS_FIRST_L2_SHARE * self.l2:
            return 1
        return min(self.tiles, STRIPS_PER_THREAD * self.threads)

    @property
    def strip_tiles(self) -> int:
        return ceil_div(self.tiles, self.strips)

    @property
    def groups(self) -> int:
        """The number of groups of output channels: one, if strips suffice for the threads."""
        strips = self.workload.batch * self.strips
        if strips >= self.threads:
            return 1
        return min(self.oc_blocks, STRIPS_PER_THREAD * self.threads)

    @property
    def tasks(self) -> int:
        return self.workload.batch * self.strips * self.groups

    @property
    def strip_rows(self) -> int:
        """The number of input rows that the longest strip reads."""
        w = self.workload
        rows = min(self.strip_tiles * self.scheme.reg_oh, self.rows)
        return (rows - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1

    @property
    def strip_columns(self) -> int:
        return self.workload.width + self.workload.padding[1] + self.workload.padding[3]
