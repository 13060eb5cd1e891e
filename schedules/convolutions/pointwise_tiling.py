"""The division of a 1x1 convolution into register tiles, strips and tasks, also by Strassen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.task_cuts import busiest_share, finer_cut
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import (
    BlockScheme,
    DotScheme,
    PointwiseScheme,
    StrassenScheme,
)
from neocpu.schedules.vocabulary.traced_sizes import (
    larger,
    least_of,
    smaller,
    typical_of,
    varies,
)
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most bytes of sums that a task keeps between its passes, if it can take fewer output channels.
MAX_SUM_BYTES = 128 << 10
# The products of a block of Strassen's, and the sums of pixels that are computed for them.
PRODUCTS: Final = 7
PIXEL_SUMS: Final = 4


class Tiling:
    """The register tiles, strips and passes of a workload.

    The pixels form one sequence: register tiles cross from one row to the next, and the last tile
    moves back so that it ends with the image. If the pixels are packed, the sequence includes all
    images of the batch.

    There are as many strips of pixels as ``scheme.strip`` asks for, and at least one per thread if
    a task computes all output channels; a task computes one of the ``groups`` of output channels of
    a strip. ``by_place`` says that a pixel's bits depend on its place in a register tile.
    Overlapping last tiles then belong to one strip: of two tasks, either might be the later one.

    For images of any size, strips are as long as those of the typical one. If the smallest image
    does not fill a register tile, pixels are packed and the last tile ``overhangs``.
    """

    def __init__(
        self,
        workload: Conv2dWorkload,
        scheme: PointwiseScheme,
        lanes: int,
        threads: int = 1,
        *,
        by_place: bool = False,
    ) -> None:
        self.workload, self.scheme, self.lanes, self.threads = workload, scheme, lanes, threads
        w, numerics = workload, workload.numerics
        # Pixels that do not all lie side by side are first packed, with the prologue applied, once.
        several = varies(w.batch) or w.batch > 1 or w.frames is not None
        self.pixels = w.batch * w.out_height * w.out_width
        self.overhangs = varies(self.pixels) and least_of(self.pixels) < scheme.reg_n
        self.packs = w.stride != (1, 1) or any(w.padding) or bool(w.prologue) or several
        self.packs |= self.overhangs
        # Register tiles along the pixels, and along the output channels.
        self.blocks = ceil_div(self.pixels, scheme.reg_n)
        self.oc_blocks = output_blocks(w, scheme)
        # Vectors of output channels of a register tile, and of input channels.
        self.vectors, self.chunks = scheme.reg_oc // lanes, ceil_div(w.in_channels, lanes)
        # A pass over a task's register tiles has at most so many vectors of input channels.
        self.passes = ceil_div(self.chunks * lanes, scheme.ic_block)
        self.pass_chunks = ceil_div(self.chunks, self.passes)
        self._tile_bytes = scheme.reg_n * scheme.reg_oc * bytes_of(numerics.sum)
        self.groups: int
        self.strip_blocks: int
        if varies(self.blocks):
            assert not by_place, scheme
            typical = Tiling(typical_of(workload), scheme, lanes, threads)
            self.groups, self.strip_blocks = typical.groups, typical.strip_blocks
            self.strips = self._enough_strips()
        else:
            overlaps = by_place and self.pixels % scheme.reg_n
            self.strips, self.groups = self._cuts(max(1, self.blocks - bool(overlaps)))
            # The blocks of the longest strip; then those of the largest group.
            self.strip_blocks = ceil_div(self.blocks, self.strips)
        self.group_blocks = ceil_div(self.oc_blocks, self.groups)
        self.tasks = self.strips * self.groups
        self.tasks_per_thread = ceil_div(self.tasks, threads)
        # Tasks of several groups read one panel, which is packed before.
        self.shares_panel = self.packs and self.groups > 1
        # The bytes of the longest strip's pixels in one pass, and of the sums that it keeps.
        pixels = self.strip_blocks * scheme.reg_n
        self.panel_bytes = pixels * self.pass_chunks * lanes * bytes_of(numerics.data)
        kept = self.strip_blocks * self.group_blocks * self._tile_bytes
        self.sum_bytes = kept if self.passes > 1 else 0
        weights = self.oc_blocks * scheme.reg_oc * self.chunks * lanes
        self.weight_bytes = weights * bytes_of(numerics.weights)

    def _cuts(self, most: int) -> tuple[int, int]:
        """Return the numbers of strips, at most ``most``, and of groups."""
        threads, strips = self.threads, ceil_div(self.blocks, self.scheme.strip)
        if self.scheme.oc_split:
            strips = min(strips, most)
            groups = self._channel_groups(strips)
            return finer_cut(strips, most, threads, lambda n: self._busiest(n, groups)), groups
        strips = min(ceil_div(strips, threads) * threads, most)
        return strips, finer_cut(1, self.oc_blocks, threads, lambda n: self._busiest(strips, n))

    def _enough_strips(self) -> int:
        """Return as many strips as there are threads, or more, so that none is too long."""
        each = ceil_div(self.threads, self.groups)
        enough = larger(ceil_div(self.blocks, self.strip_blocks), each)
        return smaller(ceil_div(enough, each) * each, self.blocks)

    def _channel_groups(self, strips: int) -> int:
        """Return one group per thread, or more if a task would have too many sums to keep."""
        groups = min(self.threads, self.oc_blocks)
        if self.passes > 1:
            all_sums = ceil_div(self.blocks, strips) * self.oc_blocks * self._tile_bytes
            while groups < self.oc_blocks and all_sums > groups * MAX_SUM_BYTES:
                groups = min(groups + self.threads, self.oc_blocks)
        return groups

    @property
    def busiest_share(self) -> float:
        """The busiest thread's share of all products; tasks may differ in size."""
        return self._busiest(self.strips, self.groups)

    def _busiest(self, strips: int, groups: int) -> float:
        starts = [part * self.oc_blocks // groups for part in range(groups + 1)]
        return busiest_share(starts, self.blocks, strips, self.threads)


class StrassenTiling:
    """The blocks, strips and groups of a workload by Strassen's algorithm.

    A block is two register tiles of pixels by two of output channels, and its sums run over two
    halves of the input channels. Input channels after both halves are multiplied directly. The
    register tiles of ``tiles``, a 1x1 convolution of one image, are these blocks.
    """

    def __init__(
        self, workload: Conv2dWorkload, scheme: StrassenScheme, lanes: int, threads: int = 1
    ) -> None:
        self.workload, self.scheme, self.lanes, self.threads = workload, scheme, lanes, threads
        # Vectors of output channels of a register tile, and of input channels.
        self.vectors, self.chunks = scheme.reg_oc // lanes, ceil_div(workload.in_channels, lanes)
        block = PointwiseScheme(
            scheme.ic_bn,
            scheme.oc_bn,
            reg_n=2 * scheme.reg_n,
            reg_oc=2 * scheme.reg_oc,
            ic_block=self.chunks * lanes,
            strip=scheme.strip,
            oc_split=scheme.oc_split,
        )
        # Images are tasks already: each is only cut further if they leave threads without one.
        threads = threads // math.gcd(threads, workload.batch)
        self.tiles = Tiling(replace(workload, batch=1), block, lanes, threads, by_place=True)
        # Vectors of input channels of a half, and the channels after both halves.
        self.half = scheme.ic_half // lanes
        self.rest = workload.in_channels - 2 * scheme.ic_half
        # Pixels are copied too if a prologue is applied to them; these and their sums are kept.
        self.packs = bool(workload.prologue)
        self.operands = PRODUCTS if self.packs else PIXEL_SUMS
        # The rows of a block's packed weights after those of all products: of the remaining
        # channels, for the first tile of output channels and for the second; the factors of pixels,
        # one for each channel of the second half; and the factors of the second tile's sums.
        self.rest_row = PRODUCTS * scheme.ic_half
        self.factor_row = self.rest_row + 2 * self.rest
        self.last_row = self.factor_row + ceil_div(scheme.ic_half, scheme.reg_oc)
        weights = self.tiles.oc_blocks * (self.last_row + 1) * scheme.reg_oc
        self.weight_bytes = weights * bytes_of(workload.numerics.weights)
        # The bytes of pixels and their sums in the longest strip.
        vectors = self.tiles.strip_blocks * scheme.reg_n
        vectors *= 2 * self.chunks + self.operands * self.half
        self.panel_bytes = vectors * lanes * bytes_of(workload.numerics.data)


def output_blocks(
    workload: Conv2dWorkload, scheme: PointwiseScheme | BlockScheme | DotScheme
) -> int:
    """Return the blocks of ``reg_oc`` channels that make up the whole output blocks."""
    return ceil_div(ceil_div(workload.out_channels, scheme.oc_bn) * scheme.oc_bn, scheme.reg_oc)
