"""The division of a 1x1 convolution into register tiles, strips of pixels and passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.task_cuts import finer_cut
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import BlockScheme, DotScheme, PointwiseScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most bytes of sums that a task keeps between its passes, if it can take fewer output channels.
MAX_SUM_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Tiling:
    """The register tiles, strips and passes of a workload.

    The pixels form one sequence: register tiles cross from one row to the next, and the last tile
    moves back so that it ends with the image. If the pixels are packed, the sequence includes all
    images of the batch.

    There are as many strips of pixels as ``scheme.strip`` asks for, and at least one per thread if
    a task computes all output channels; a task computes one of the ``groups`` of output channels of
    a strip. ``by_place`` says that a pixel's bits depend on its place in a register tile.
    Overlapping last tiles then belong to one strip: of two tasks, either might be the later one.
    """

    workload: Conv2dWorkload
    scheme: PointwiseScheme
    lanes: int
    threads: int = 1
    by_place: bool = False
    # These are fields because estimates read them dozens of times each.
    strips: int = field(init=False, repr=False, compare=False)
    groups: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strips, most = ceil_div(self.blocks, self.scheme.strip), self.blocks
        if self.by_place and self.pixels % self.scheme.reg_n:
            most = max(1, most - 1)
        if self.scheme.oc_split:
            strips = min(strips, most)
            groups = self._channel_groups(strips)
            strips = finer_cut(
                strips, most, self.threads, lambda parts: self._busiest(parts, groups)
            )
        else:
            strips = min(ceil_div(strips, self.threads) * self.threads, most)
            groups = finer_cut(
                1, self.oc_blocks, self.threads, lambda parts: self._busiest(strips, parts)
            )
        object.__setattr__(self, "strips", strips)
        object.__setattr__(self, "groups", groups)

    @property
    def packs(self) -> bool:
        """Whether pixels are first copied to a panel, because they do not all lie side by side.

        Packing also applies the prologue, once.
        """
        w = self.workload
        several = w.batch > 1 or w.frames is not None
        return w.stride != (1, 1) or any(w.padding) or bool(w.prologue) or several

    @property
    def pixels(self) -> int:
        return self.workload.batch * self.workload.out_height * self.workload.out_width

    @property
    def vectors(self) -> int:
        """The number of vectors of output channels in one register tile."""
        return self.scheme.reg_oc // self.lanes

    @property
    def chunks(self) -> int:
        """The number of vectors of input channels."""
        return ceil_div(self.workload.in_channels, self.lanes)

    @property
    def passes(self) -> int:
        """The number of passes over a task's register tiles; each has some input channels."""
        return ceil_div(self.chunks * self.lanes, self.scheme.ic_block)

    @property
    def pass_chunks(self) -> int:
        """The number of vectors of input channels in the longest pass."""
        return ceil_div(self.chunks, self.passes)

    @property
    def oc_blocks(self) -> int:
        """The number of register tiles along the output channels, padding included."""
        return output_blocks(self.workload, self.scheme)

    @property
    def blocks(self) -> int:
        """The number of register tiles along the pixels."""
        return ceil_div(self.pixels, self.scheme.reg_n)

    @property
    def strip_blocks(self) -> int:
        return ceil_div(self.blocks, self.strips)

    def _channel_groups(self, strips: int) -> int:
        """Return one group per thread, or more if a task would have too many sums to keep."""
        groups = min(self.threads, self.oc_blocks)
        if self.passes > 1:
            all_sums = ceil_div(self.blocks, strips) * self.oc_blocks * self._tile_bytes
            while groups < self.oc_blocks and all_sums > groups * MAX_SUM_BYTES:
                groups = min(groups + self.threads, self.oc_blocks)
        return groups

    @property
    def group_blocks(self) -> int:
        return ceil_div(self.oc_blocks, self.groups)

    @property
    def tasks(self) -> int:
        return self.strips * self.groups

    @property
    def tasks_per_thread(self) -> int:
        """The number of consecutive tasks of a thread; the last thread may have fewer."""
        return ceil_div(self.tasks, self.threads)

    @property
    def busiest_share(self) -> float:
        """The busiest thread's share of all products; tasks may differ in size."""
        return self._busiest(self.strips, self.groups)

    def _busiest(self, strips: int, groups: int) -> float:
        tasks = strips * groups

        def before(task: int) -> int:
            """Register tiles of the tasks before one."""
            group, strip = divmod(task, strips)
            first, end = (part * self.oc_blocks // groups for part in (group, group + 1))
            return first * self.blocks + (end - first) * (strip * self.blocks // strips)

        done = [*map(before, range(0, tasks, ceil_div(tasks, self.threads))), before(tasks)]
        return max(end - start for start, end in pairwise(done)) / done[-1]

    @property
    def shares_panel(self) -> bool:
        """Whether the whole panel is packed first, for tasks of several groups to read."""
        return self.packs and self.groups > 1

    @property
    def panel_bytes(self) -> int:
        """The bytes of pixels of the longest strip in one pass."""
        pixels = self.strip_blocks * self.scheme.reg_n
        return pixels * self.pass_chunks * self.lanes * bytes_of(self.workload.numerics.data)

    @property
    def sum_bytes(self) -> int:
        """The bytes of sums that a task keeps from one pass to the next."""
        return self.strip_blocks * self.group_blocks * self._tile_bytes if self.passes > 1 else 0

    @property
    def weight_bytes(self) -> int:
        out_channels = self.oc_blocks * self.scheme.reg_oc
        element = bytes_of(self.workload.numerics.weights)
        return out_channels * self.chunks * self.lanes * element

    @property
    def _tile_bytes(self) -> int:
        return self.scheme.reg_n * self.scheme.reg_oc * bytes_of(self.workload.numerics.sum)


def output_blocks(
    workload: Conv2dWorkload, scheme: PointwiseScheme | BlockScheme | DotScheme
) -> int:
    """Return the blocks of ``reg_oc`` channels that make up the whole output blocks."""
    return ceil_div(ceil_div(workload.out_channels, scheme.oc_bn) * scheme.oc_bn, scheme.reg_oc)
