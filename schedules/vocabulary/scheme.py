"""Schemes: the parameters by which a template computes an operator.

The parameter names are the paper's (§3.3.1) wherever it has one: ``ic_bn``, ``oc_bn``, ``reg_n``
and ``unroll_ker``. A scheme fixes the layouts of input and output, so choosing schemes is choosing
layouts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, KernelLayout

# Optional parameters; with 0, their default, kernels are the same as without them.
OPTIONAL = ("edge_tiles", "int16_groups", "on_the_fly", "out_bn", "sum_chunks")
# The largest value of a parameter: parameters count channels, pixels and tiles of tensors that fit
# in memory.
MAX_PARAMETER = 1 << 24


@dataclass(frozen=True, slots=True)
class Scheme:
    """Base class of all schemes; each subclass belongs to one template.

    `words` is the sentence by which reports describe the template; empty for those of other
    packages.
    """

    template: ClassVar[str]
    words: ClassVar[str] = ""

    @property
    def in_layout(self) -> DataLayout:
        raise AssertionError("abstract")

    @property
    def out_layout(self) -> DataLayout:
        raise AssertionError("abstract")

    def to_json(self) -> JsonObject:
        """Return the template's name and its parameters, without unset ones of `OPTIONAL`."""
        params = {k: v for k, v in asdict(self).items() if v or k not in OPTIONAL}
        return {"template": self.template, **params}

    def __str__(self) -> str:
        params = self.to_json()
        name = params.pop("template")
        return f"{name}({' '.join(f'{k}={v}' for k, v in params.items())})"


@dataclass(frozen=True, slots=True)
class BlockedScheme(Scheme):
    """Base class of schemes that read NCHW[ic_bn]c and write NCHW[oc_bn]c."""

    ic_bn: int
    oc_bn: int

    @property
    def in_layout(self) -> DataLayout:
        return DataLayout(self.ic_bn)

    @property
    def out_layout(self) -> DataLayout:
        return DataLayout(self.oc_bn)


class StoreFold(Scheme):
    """Base class of schemes whose stores may also transform the layout, to blocks of ``out_bn``."""

    __slots__ = ()
    oc_bn: int
    out_bn: int

    def __post_init__(self) -> None:
        if self.out_bn == self.oc_bn:
            raise ValueError(f"out_bn={self.out_bn} is oc_bn: leave it out")

    @property
    def out_layout(self) -> DataLayout:
        """NCHW[out_bn]c if ``out_bn`` is set, otherwise NCHW[oc_bn]c."""
        return DataLayout(self.out_bn or self.oc_bn)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectScheme(StoreFold, BlockedScheme):
    """Direct NCHW[x]c convolution: the paper's Algorithm 1, with a wider register tile.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts, which need not divide the
      channels. ``ic_bn == 1`` reads NCHW. ``oc_bn`` may span several vectors.
    - `reg_n`: the number of output columns of one register tile.
    - `unroll_ker`: whether the loops over the kernel window are unrolled.
    - `reg_oh`: the number of output rows of one register tile, which holds ``reg_oh * reg_n *
      oc_bn`` accumulators.
    - `out_bn`: the channel block of the output layout if it differs from ``oc_bn``, which is then
      only the width of a register tile: stores transform the layout. Otherwise 0.
    - `sum_chunks`: the number of input chunks, a divisor of all, whose products are summed before
      they are added to the output's sum, which rounds less. 0 sums all chunks in one go.
    """

    template: ClassVar[str] = "conv2d_direct"
    words: ClassVar[str] = "The convolution as it is written, a tile of its outputs in registers."
    reg_n: int
    unroll_ker: bool
    reg_oh: int = 1
    out_bn: int = 0
    sum_chunks: int = 0

    @property
    def kernel_layout(self) -> KernelLayout:
        return KernelLayout(self.ic_bn, self.oc_bn)


@dataclass(frozen=True, slots=True)
class NchwScheme(Scheme):
    """Convolution in plain NCHW, vectorised along the output row; any number of groups.

    One register tile has ``reg_oc`` output channels and ``reg_n`` output columns.
    """

    template: ClassVar[str] = "conv2d_nchw"
    words: ClassVar[str] = "In plain NCHW, vectorised along the rows of the picture."
    reg_oc: int
    reg_n: int

    @property
    def in_layout(self) -> DataLayout:
        return NCHW

    @property
    def out_layout(self) -> DataLayout:
        return NCHW


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradScheme(BlockedScheme):
    """Winograd convolution in NCHW[x]c.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts: whole vectors that need not
      divide the channels.
    - `reg_n`: the number of Winograd tiles in one register tile.
    - `tile`: the number of output pixels along the side of a Winograd tile; along a dimension of
      one tap a tile has one pixel.
    - `reg_oc`: the number of output channels of one register tile, which holds ``reg_n * reg_oc``
      accumulators: whole vectors that need not divide the channels.
    - `strip`: the number of register tiles, along the image, in one task.
    - `oc_split`: whether a task computes a share of its strip's output channels from input that was
      transformed before. Otherwise a task transforms its strip itself and computes all output
      channels.
    - `edge_tiles`: whether smaller tiles with the same weights compute what whole tiles leave over
      at the ends of rows and columns. It needs whole images and ``oc_split``. ``reg_n`` is then the
      most that a register tile has. It changes nothing where nothing is left over.
    - `on_the_fly`: whether weights of bytes are stored untransformed, and each task transforms
      them; it needs ``oc_split``. It changes nothing for other weights.
    """

    template: ClassVar[str] = "conv2d_winograd"
    words: ClassVar[str] = "Transforms tiles of pixels, so that a product does the work of several."
    reg_n: int
    tile: int
    reg_oc: int
    strip: int
    oc_split: bool
    edge_tiles: bool = False
    on_the_fly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseScheme(BlockedScheme):
    """1x1 convolution as a blocked matrix product, in NCHW[x]c.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts: whole vectors that need not
      divide the channels.
    - `reg_n`: the number of pixels of one register tile, along the image as if it were one row.
    - `reg_oc`: the number of output channels of one register tile, which holds ``reg_n * reg_oc``
      accumulators.
    - `ic_block`: the number of input channels in one pass over a task's register tiles, whose
      weights stay in L1.
    - `strip`: the number of register tiles, along the image, in one task.
    - `oc_split`: whether the threads share the output channels of a strip. Otherwise one task
      computes all of them.
    """

    template: ClassVar[str] = "conv2d_pointwise"
    words: ClassVar[str] = "Of single pixels, so a product of matrices, cut for the caches."
    reg_n: int
    reg_oc: int
    ic_block: int
    strip: int
    oc_split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StrassenScheme(BlockedScheme):
    """1x1 convolution as a matrix product by Strassen's algorithm, in NCHW[x]c.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts: whole vectors that need not
      divide the channels.
    - `reg_n`: the number of pixels of one register tile; two tiles are the halves of a block.
    - `reg_oc`: the number of output channels of one register tile; two tiles are the halves of a
      block.
    - `ic_half`: the number of input channels of each half, in whole vectors; channels after both
      halves are multiplied directly.
    - `strip`: the number of blocks, along the image, in one task.
    - `oc_split`: whether the threads share the output channels of a strip. Otherwise one task
      computes all of them.
    """

    template: ClassVar[str] = "conv2d_strassen"
    words: ClassVar[str] = "Of single pixels: products of halves of the matrices, seven for eight."
    reg_n: int
    reg_oc: int
    ic_half: int
    strip: int
    oc_split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DotScheme(BlockedScheme):
    """Direct convolution by instructions that add several products to each sum, in NCHW[x]c.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts: whole groups of products and
      whole vectors of sums, which need not divide the channels.
    - `reg_n`: the number of output columns of one register tile.
    - `unroll_ker`: whether the loops over the kernel window are unrolled.
    - `reg_oh`: the number of output rows of one register tile, which holds ``reg_oh * reg_n *
      reg_oc`` sums.
    - `reg_oc`: the number of output channels of one register tile, in whole vectors.
    - `int16_groups`: the number of groups of products, 2 or 4, that are added in 16 bits before
      they are added to a sum, on CPUs without an instruction for all of it. The workload's weights
      must allow it (`Numerics.int16_sums`). 0 adds each group alone.
    """

    template: ClassVar[str] = "conv2d_dot"
    words: ClassVar[str] = "By instructions that add several products of few bits to each sum."
    reg_n: int
    unroll_ker: bool
    reg_oh: int
    reg_oc: int
    int16_groups: int = 0

    @property
    def step_groups(self) -> int:
        """The number of groups of products in one step."""
        return self.int16_groups or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockScheme(BlockedScheme):
    """Base class of schemes whose instructions multiply blocks of pixels by blocks of channels.

    - `ic_bn`, `oc_bn`: channel blocks of the input and output layouts, like those of `DotScheme`.
    - `reg_n`: the number of output columns of one register tile: whole blocks of the instruction's
      rows, or fewer where rows of the output are shorter.
    - `unroll_ker`: whether the loop over the rows of the kernel window is unrolled; the loop over
      its columns always is.
    - `reg_oc`: the number of output channels of one register tile: whole blocks of the
      instruction's columns.
    """

    reg_n: int
    unroll_ker: bool
    reg_oc: int

    @property
    def reg_oh(self) -> int:
        return 1

    @property
    def step_groups(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixScheme(BlockScheme):
    """Direct convolution by instructions that multiply pixels by channels, in NCHW[x]c.

    `dot` is the number of input channels whose weights lie side by side, as the instruction takes
    them.
    """

    template: ClassVar[str] = "conv2d_matrix"
    words: ClassVar[str] = (
        "By instructions that multiply several pixels by several channels at once."
    )
    dot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScheme(BlockScheme):
    """Direct convolution of float32 by tiles of bfloat16, each value as two, in NCHW[x]c."""

    template: ClassVar[str] = "conv2d_split"
    words: ClassVar[str] = (
        "Of float32, by products of bfloat16: three of parts of the values for one."
    )


@dataclass(frozen=True, slots=True)
class TransformScheme(Scheme):
    """The only scheme of a layout transform, which its workload describes fully."""

    template: ClassVar[str] = "layout_transform"
    words: ClassVar[str] = "Moves channels into other blocks."


@dataclass(frozen=True, slots=True)
class JoinScheme(Scheme):
    """The only scheme of an elementwise operator or a concatenation; the workload says all."""

    template: ClassVar[str] = "join"
    words: ClassVar[str] = "Copies feature maps side by side."
