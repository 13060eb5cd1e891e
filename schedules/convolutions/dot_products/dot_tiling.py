"""The division of a convolution by dot products into register tiles and tasks."""

from __future__ import annotations

from math import gcd, prod

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.memory_traffic import cold_weights, with_memory
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import BlockScheme, DotScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most groups of products in a row: the number of NEON's lanes.
UNROLLED_GROUPS = 4
AVX512_BYTES = 64
# The most dot products of loops that LLVM may unroll completely.
MAX_UNROLLED_PRODUCTS = 256
# Strips of rows: enough to be about equal; so few that the weights, which each reads, come from L1.
STRIPS_PER_THREAD = 4
# The most weights, in L2 caches, with which a thread takes rows and not channels.
ROWS_FIRST_L2_SHARE = 1.25


class DotTiling:
    """The register tiles of a workload, in strips and groups of output channels.

    A 1x1 convolution whose pixels lie side by side treats the image as one row. The last tiles of a
    row and of an image move back, so that they end with it, unless they overhang. ``l2`` is in
    bytes.
    """

    @property
    def overhangs(self) -> bool:
        """Whether the last register tiles overhang, so that small images need not fill one."""
        return False

    def __init__(
        self,
        workload: Conv2dWorkload,
        scheme: BlockScheme | DotScheme,
        unit: DotUnit,
        l2: int,
        threads: int = 1,
    ) -> None:
        self.workload, self.scheme, self.unit = workload, scheme, unit
        self.l2, self.threads = l2, threads
        w = workload
        self.copies, self.is_flat = self._reading()
        self.rows = 1 if self.is_flat else w.out_height
        self.columns = self._columns()
        self.column_tiles = ceil_div(self.columns, scheme.reg_n)
        # The units of a strip: rows of register tiles, or tiles of the one row.
        self.tiles = self.column_tiles if self.is_flat else ceil_div(self.rows, scheme.reg_oh)
        # Vectors of sums for each pixel of a register tile; tiles along the output channels.
        self.vectors, self.oc_blocks = scheme.reg_oc // unit.lanes, output_blocks(w, scheme)
        self.strip_columns = w.width + w.padding[1] + w.padding[3]
        self._divide_channels()
        self.image_chunks = self.chunks * w.groups
        self.strips = self._strips()
        self.strip_tiles = self._strip_tiles()
        self.groups = self._groups()
        self.tasks = w.batch * self.strips * self.groups
        self.strip_rows = self._strip_rows()
        self._check()

    def _check(self) -> None:
        """Check what the unit asks of schemes: records may have arbitrary ones."""

    def _reading(self) -> tuple[bool, bool]:
        """Return whether tasks copy their input with its border, and whether images are one row."""
        w = self.workload
        copies = any(w.padding) or reads_outside(w)
        return copies, w.kernel == (1, 1) and w.stride == (1, 1) and not copies

    def _columns(self) -> int:
        """Return the pixels of a row of register tiles."""
        w = self.workload
        return w.out_height * w.out_width if self.is_flat else w.out_width

    def _strip_tiles(self) -> int:
        """Return the most tiles of a strip."""
        return ceil_div(self.tiles, self.strips)

    def _strip_rows(self) -> int:
        """Return the input rows that the longest strip reads."""
        w = self.workload
        rows = min(self.strip_tiles * self.scheme.reg_oh, self.rows)
        return (rows - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1

    def _divide_channels(self) -> None:
        w, s = self.workload, self.scheme
        # Blocks of a group's input channels, added up; groups of products in each, at a tap.
        self.chunks = ceil_div(w.kernel_shape[1], s.ic_bn)
        self.chunk_groups = s.ic_bn // self.unit.group
        # The bytes of weights of one register tile.
        each = w.kernel[0] * w.kernel[1] * s.reg_oc * bytes_of(w.numerics.weights)
        self.block_bytes = self.chunks * s.ic_bn * each

    def _strips(self) -> int:
        """Return the strips of an image's tiles: one, if weights are too large to be read twice."""
        if self.oc_blocks * self.block_bytes > ROWS_FIRST_L2_SHARE * self.l2:
            return 1
        return min(self.tiles, STRIPS_PER_THREAD * self.threads)

    def _groups(self) -> int:
        """Return the groups of output channels: one, if strips suffice for the threads."""
        if self.workload.batch * self.strips >= self.threads:
            return 1
        return min(self.oc_blocks, STRIPS_PER_THREAD * self.threads)

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
        """Whether LLVM would unroll a register tile's loops: all of them if products take a lane
        (NEON), else the innermost.
        """
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

    def seconds(self, work: float, target: CpuTarget) -> float:
        """Return the seconds of all tasks of ``work`` cycles each, with weight transfers."""
        busy = ceil_div(self.tasks, self.threads) * work / target.frequency
        weights = self.oc_blocks * self.block_bytes
        cold = cold_weights(weights, target, self.groups, self.workload.batch)
        return with_memory(busy, weights / self.groups, cold, target)
