"""Schemes: the parameters, with the paper's names (§3.3.1) if it has them, by which a template
computes an operator. Choosing schemes is choosing layouts, which they fix.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, KernelLayout

# Optional parameters; with 0, their default, kernels are the same as without them.
OPTIONAL = ("edge_tiles", "int16_groups", "on_the_fly", "out_bn", "sum_chunks")
# The largest parameter: they count channels, pixels and tiles of tensors that fit in memory.
MAX_PARAMETER = 1 << 24


@dataclass(frozen=True, slots=True)
class Scheme:
    """Base class of all schemes; each subclass belongs to one template. `words` is the sentence by
    which reports describe the template; empty for those of other packages.
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
    """Base class of schemes that read NCHW[ic_bn]c and write NCHW[oc_bn]c.

    Blocks are whole vectors, unless a scheme says otherwise, and need not divide the channels.
    Schemes name parameters alike:

    - `reg_n`, `reg_oh`: output columns, and rows, of a register tile.
    - `reg_oc`: its output channels, in whole vectors that need not divide all channels. It holds
      ``reg_oh * reg_n * reg_oc`` accumulators.
    - `unroll_ker`: whether the loops over the kernel window are unrolled.
    - `strip`: the register tiles, along the image, in one task.
    - `oc_split`: whether threads share a strip's output channels, not one task computes all.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradScheme(BlockedScheme):
    """Winograd convolution in NCHW[x]c.

    - `reg_n`: the Winograd tiles of a register tile; the most of them with `edge_tiles`.
    - `tile`: the output pixels along a Winograd tile's side; one along a dimension of one tap.
    - `oc_split`: whether a task computes a share of its strip's output channels from input that was
      transformed before, instead of transforming its strip and computing all.
    - `edge_tiles`: whether smaller tiles with the same weights compute what whole tiles leave over,
      if anything, at ends of rows and columns. It needs whole images and ``oc_split``.
    - `on_the_fly`: whether weights, if they are bytes, are stored untransformed, and transformed by
      each task; it needs ``oc_split``.
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


@dataclass(frozen=True, slots=True)
class GroupScheme(StoreFold):
    """Base class of schemes for grouped convolutions in NCHW[oc_bn]c, one vector lane per channel.

    - `oc_bn`: the block of the input layout, and of the output layout if ``out_bn`` is 0.
    - `reg_n`: the output columns of a register tile, with one vector of channels for each.
    - `unroll_ker`: whether the loop over the window's rows is unrolled; that over columns always
      is.
    - `out_bn`: the output's block if it differs from ``oc_bn``; otherwise 0.

    `moves_back` says whether the last register tile of a row overlaps the one before it, in place
    of a narrower one. The loop nest is then the same for all widths from two tiles and a pad on.
    """

    moves_back: ClassVar[bool] = False
    oc_bn: int
    reg_n: int
    unroll_ker: bool
    out_bn: int = 0

    @property
    def in_layout(self) -> DataLayout:
        return DataLayout(self.oc_bn)


@dataclass(frozen=True, slots=True)
class DepthwiseScheme(GroupScheme):
    """Depthwise convolution: each input channel makes one output channel."""

    template: ClassVar[str] = "conv2d_depthwise"
    words: ClassVar[str] = "Each channel by itself, a vector lane per channel."


@dataclass(frozen=True, slots=True)
class GroupedScheme(GroupScheme):
    """Grouped convolution whose groups have as many output channels as input channels."""

    template: ClassVar[str] = "conv2d_grouped"
    words: ClassVar[str] = "Each group of channels by itself, a vector lane per output channel."


class MovedDepthwiseScheme(DepthwiseScheme):
    """A `DepthwiseScheme` for rows of any width; no record has one."""

    __slots__ = ()
    moves_back: ClassVar[bool] = True


class MovedGroupedScheme(GroupedScheme):
    """A `GroupedScheme` for rows of any width; no record has one."""

    __slots__ = ()
    moves_back: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseScheme(BlockedScheme):
    """1x1 convolution as a blocked matrix product, in NCHW[x]c.

    - `reg_n`: the number of pixels of one register tile, along the image as if it were one row.
    - `ic_block`: the number of input channels in one pass over a task's register tiles, whose
      weights stay in L1.
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

    - `reg_n`, `reg_oc`: pixels and output channels of a register tile; two are halves of a block.
    - `ic_half`: the input channels of each half, in whole vectors; those after both halves are
      multiplied directly.
    - `strip`: the blocks, along the image, in one task.
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

    - `reg_n`, `reg_oc`: whole blocks of the instruction's rows, or fewer where rows of the output
      are shorter, and whole blocks of its columns.
    - `unroll_ker`: whether the loop over the window's rows is unrolled; that over columns always
      is.
    - `reg_oh`: the rows of the output in a register tile, of ``reg_n`` pixels each.
    """

    reg_n: int
    unroll_ker: bool
    reg_oc: int
    reg_oh: int = 1

    @property
    def step_groups(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixScheme(BlockScheme):
    """Direct convolution by instructions that multiply pixels by channels, in NCHW[x]c. `dot` is
    the number of input channels whose weights lie side by side, as the instruction takes them.
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
class NchwScheme(Scheme):
    """Convolution in plain NCHW, vectorised along the output row; any number of groups. One
    register tile has ``reg_oc`` output channels and ``reg_n`` output columns.
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


# The classes are here and not in the templates' files, because databases are read where no compiler
# is installed. Templates are registered in their order, which decides between equal estimates.
SCHEMES: dict[str, type[Scheme]] = {
    cls.template: cls
    for cls in [*globals().values()]
    if isinstance(cls, type) and issubclass(cls, Scheme) and "template" in vars(cls)
}


def register_scheme(cls: type[Scheme]) -> None:
    """Make a scheme class known to `scheme_from_json`; ValueError if another has that name."""
    if SCHEMES.setdefault(cls.template, cls) is not cls:
        raise ValueError(f"template {cls.template!r} belongs to another class than {cls.__name__}")


def unregister_scheme(cls: type[Scheme]) -> None:
    SCHEMES.pop(cls.template, None)


def scheme_from_json(data: JsonObject) -> Scheme:
    """Read a scheme from JSON; the inverse of `Scheme.to_json`. Raises ValueError if the template
    is unknown, or a parameter is missing, unexpected or of the wrong type.
    """
    params = dict(data)
    name = params.pop("template", None)
    cls = SCHEMES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"unknown template {name!r}")
    known = {f.name: f.type for f in fields(cls)}
    given = set(params) | known.keys() & set(OPTIONAL)
    if given != known.keys() or not all(_fits(v, k, known[k]) for k, v in params.items()):
        raise ValueError(f"bad parameters for {name}: {params!r}; expected {sorted(known)}")
    return cls(**params)


def _fits(value: Any, name: str, kind: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    return type(value) is int and (0 if name in OPTIONAL else 1) <= value <= MAX_PARAMETER
