"""Schemes: how an operator is computed. A template's name plus its parameters.

The parameter names are the paper's (§3.3.1) wherever it has one: ``ic_bn``, ``oc_bn``, ``reg_n``
and ``unroll_ker``. A scheme fixes the layouts at its ends: choosing schemes is choosing layouts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, KernelLayout

# Parameters that need not be there; 0, their default, leaves a kernel as it is without them.
OPTIONAL = ("edge_tiles", "int16_groups", "on_the_fly", "out_bn", "sum_chunks")
# Of any parameter: they count channels, pixels and tiles of them, of tensors that fit a memory.
MAX_PARAMETER = 1 << 24


@dataclass(frozen=True, slots=True)
class Scheme:
    """Base of all schemes; each subclass belongs to one template."""

    template: ClassVar[str]

    @property
    def in_layout(self) -> DataLayout:
        """Layout the template reads its input in."""
        raise AssertionError("abstract")

    @property
    def out_layout(self) -> DataLayout:
        """Layout the template writes its output in."""
        raise AssertionError("abstract")

    def to_json(self) -> dict[str, Any]:
        """JSON form: the template's name and its parameters, of `OPTIONAL` only those in use."""
        params = {k: v for k, v in asdict(self).items() if v or k not in OPTIONAL}
        return {"template": self.template, **params}

    def __str__(self) -> str:
        params = self.to_json()
        name = params.pop("template")
        return f"{name}({' '.join(f'{k}={v}' for k, v in params.items())})"


@dataclass(frozen=True, slots=True)
class BlockedScheme(Scheme):
    """Base of schemes that read NCHW[ic_bn]c and write NCHW[oc_bn]c."""

    ic_bn: int
    oc_bn: int

    @property
    def in_layout(self) -> DataLayout:
        """NCHW[ic_bn]c."""
        return DataLayout(self.ic_bn)

    @property
    def out_layout(self) -> DataLayout:
        """NCHW[oc_bn]c."""
        return DataLayout(self.oc_bn)


class StoreFold(Scheme):
    """Base of schemes whose ``out_bn`` folds a layout transform into the stores of ``oc_bn``."""

    __slots__ = ()
    oc_bn: int
    out_bn: int

    def __post_init__(self) -> None:
        if self.out_bn == self.oc_bn:
            raise ValueError(f"out_bn={self.out_bn} is oc_bn: leave it out")

    @property
    def out_layout(self) -> DataLayout:
        """NCHW[out_bn]c, or NCHW[oc_bn]c."""
        return DataLayout(self.out_bn or self.oc_bn)


@dataclass(frozen=True, slots=True)
class DirectScheme(StoreFold, BlockedScheme):
    """Direct NCHW[x]c convolution: the paper's Algorithm 1, with a wider register tile.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts; need not divide the channels. ``ic_bn == 1``
        reads NCHW. ``oc_bn`` may span several vectors.
    reg_n : int
        Output columns of one register tile.
    unroll_ker : bool
        Unroll the loops over the kernel window.
    reg_oh : int
        Output rows of one register tile; the tile holds ``reg_oh * reg_n * oc_bn`` accumulators.
    out_bn : int
        Channel block of the output layout where it is not ``oc_bn``, which then only says what one
        register tile computes: a layout transform folded into its stores. Otherwise 0.
    sum_chunks : int
        Input chunks whose products are summed before they are added to the output's sum, which
        rounds less; a divisor of their number. 0 sums all of them in one go.
    """

    template: ClassVar[str] = "conv2d_direct"
    reg_n: int
    unroll_ker: bool
    reg_oh: int = 1
    out_bn: int = 0
    sum_chunks: int = 0

    @property
    def kernel_layout(self) -> KernelLayout:
        """OIHW[ic_bn]i[oc_bn]o."""
        return KernelLayout(self.ic_bn, self.oc_bn)


@dataclass(frozen=True, slots=True)
class GroupScheme(StoreFold):
    """Base of convolutions in equal groups in NCHW[oc_bn]c: a vector lane per output channel.

    Attributes
    ----------
    oc_bn : int
        Channel block of the input layout, and of the output layout but for ``out_bn``.
    reg_n : int
        Output columns of one register tile, which holds a vector of channels of each.
    unroll_ker : bool
        Unroll the loop over the rows of the kernel window; that over its columns always is.
    out_bn : int
        Channel block of the output layout where it is not ``oc_bn``. Otherwise 0.
    """

    oc_bn: int
    reg_n: int
    unroll_ker: bool
    out_bn: int = 0

    def __post_init__(self) -> None:
        if self.out_bn == self.oc_bn:
            raise ValueError(f"out_bn={self.out_bn} is oc_bn: leave it out")

    @property
    def in_layout(self) -> DataLayout:
        """NCHW[oc_bn]c."""
        return DataLayout(self.oc_bn)

    @property
    def out_layout(self) -> DataLayout:
        """NCHW[out_bn]c, or NCHW[oc_bn]c."""
        return DataLayout(self.out_bn or self.oc_bn)


@dataclass(frozen=True, slots=True)
class DepthwiseScheme(GroupScheme):
    """Depthwise convolution: each input channel makes one output channel."""

    template: ClassVar[str] = "conv2d_depthwise"


@dataclass(frozen=True, slots=True)
class GroupedScheme(GroupScheme):
    """Grouped convolution: every group makes as many output channels as it has inputs."""

    template: ClassVar[str] = "conv2d_grouped"


@dataclass(frozen=True, slots=True)
class NchwScheme(Scheme):
    """Convolution in plain NCHW, vectorised along the output row; any number of groups.

    ``reg_oc`` output channels and ``reg_n`` output columns make one register tile.
    """

    template: ClassVar[str] = "conv2d_nchw"
    reg_oc: int
    reg_n: int

    @property
    def in_layout(self) -> DataLayout:
        """NCHW."""
        return NCHW

    @property
    def out_layout(self) -> DataLayout:
        """NCHW."""
        return NCHW


@dataclass(frozen=True, slots=True)
class WinogradScheme(BlockedScheme):
    """Winograd convolution in NCHW[x]c.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts: whole vectors; need not divide the channels.
    reg_n : int
        Winograd tiles of one register tile.
    tile : int
        Output pixels along a Winograd tile's side; along a dimension of one tap a tile is a pixel.
    reg_oc : int
        Output channels of one register tile, which holds ``reg_n * reg_oc`` accumulators: whole
        vectors; need not divide the channels.
    strip : int
        Register tiles, along the image, of one task.
    oc_split : bool
        Whether a task computes a share of its strip's output channels, from an input that was
        transformed before, or transforms its strip itself and computes all of them.
    edge_tiles : bool
        Whether smaller tiles, of the same weights, compute what whole ones leave over at the ends
        of rows and columns: of the whole image, and with ``oc_split`` alone. ``reg_n`` then is
        what a register tile has at most. Where nothing is left over it changes nothing.
    on_the_fly : bool
        Whether weights, of bytes, are kept as they are given, and transformed by each task: with
        ``oc_split`` alone. Of others it changes nothing.
    """

    template: ClassVar[str] = "conv2d_winograd"
    reg_n: int
    tile: int
    reg_oc: int
    strip: int
    oc_split: bool
    edge_tiles: bool = False
    on_the_fly: bool = False


@dataclass(frozen=True, slots=True)
class PointwiseScheme(BlockedScheme):
    """1x1 convolution as a blocked matrix product, in NCHW[x]c.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts: whole vectors; need not divide the channels.
    reg_n : int
        Pixels of one register tile, along the image as if it were one row.
    reg_oc : int
        Output channels of one register tile, which holds ``reg_n * reg_oc`` accumulators.
    ic_block : int
        Input channels of one pass over a task's register tiles: their weights stay in L1.
    strip : int
        Register tiles, along the image, of one task.
    oc_split : bool
        Whether the threads share the output channels of a strip, or a task computes all of them.
    """

    template: ClassVar[str] = "conv2d_pointwise"
    reg_n: int
    reg_oc: int
    ic_block: int
    strip: int
    oc_split: bool


@dataclass(frozen=True, slots=True)
class StrassenScheme(BlockedScheme):
    """1x1 convolution as a matrix product by Strassen's algorithm, in NCHW[x]c.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts: whole vectors; need not divide the channels.
    reg_n : int
        Pixels of one register tile: two of them are the halves of a block.
    reg_oc : int
        Output channels of one register tile: two of them are the halves of a block.
    ic_half : int
        Input channels of each half, whole vectors; those after both are multiplied as they are.
    strip : int
        Blocks, along the image, of one task.
    oc_split : bool
        Whether the threads share the output channels of a strip, or a task computes all of them.
    """

    template: ClassVar[str] = "conv2d_strassen"
    reg_n: int
    reg_oc: int
    ic_half: int
    strip: int
    oc_split: bool


@dataclass(frozen=True, slots=True)
class DotScheme(BlockedScheme):
    """Direct convolution by instructions that add several products to each sum, in NCHW[x]c.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts: whole groups of products, and whole vectors
        of sums; need not divide the channels.
    reg_n : int
        Output columns of one register tile.
    unroll_ker : bool
        Unroll the loops over the kernel window.
    reg_oh : int
        Output rows of one register tile, which holds ``reg_oh * reg_n * reg_oc`` sums.
    reg_oc : int
        Output channels of one register tile: whole vectors.
    int16_groups : int
        Groups of products that are added up in 16 bits before they are added to a sum, where the
        CPU has no instruction for all of it: 2 or 4, which the workload's weights must allow
        (`Numerics.int16_sums`). 0 adds each by itself.
    """

    template: ClassVar[str] = "conv2d_dot"
    reg_n: int
    unroll_ker: bool
    reg_oh: int
    reg_oc: int
    int16_groups: int = 0

    @property
    def step_groups(self) -> int:
        """Groups of products of one step."""
        return self.int16_groups or 1


@dataclass(frozen=True, slots=True)
class BlockScheme(BlockedScheme):
    """Base of schemes of instructions that multiply blocks of pixels by blocks of channels.

    Attributes
    ----------
    ic_bn, oc_bn : int
        Channel blocks of the input and output layouts, as those of `DotScheme`.
    reg_n : int
        Output columns of one register tile: of whole blocks of the instruction's rows, or, where
        rows of the output are shorter, of fewer.
    unroll_ker : bool
        Unroll the loop over the kernel window's rows; those over its columns are.
    reg_oc : int
        Output channels of one register tile: whole blocks of the instruction's columns.
    """

    reg_n: int
    unroll_ker: bool
    reg_oc: int

    @property
    def reg_oh(self) -> int:
        """Output rows of one register tile."""
        return 1

    @property
    def step_groups(self) -> int:
        """Groups of products of one step."""
        return 1


@dataclass(frozen=True, slots=True)
class MatrixScheme(BlockScheme):
    """Direct convolution by instructions that multiply pixels by channels, in NCHW[x]c.

    Attributes
    ----------
    dot : int
        Input channels whose weights lie side by side, as the instruction takes them.
    """

    template: ClassVar[str] = "conv2d_matrix"
    dot: int


@dataclass(frozen=True, slots=True)
class SplitScheme(BlockScheme):
    """Direct convolution of float32 by tiles of bfloat16, two values for one, in NCHW[x]c."""

    template: ClassVar[str] = "conv2d_split"


@dataclass(frozen=True, slots=True)
class TransformScheme(Scheme):
    """The one way to transform a layout: its workload says all."""

    template: ClassVar[str] = "layout_transform"


@dataclass(frozen=True, slots=True)
class JoinScheme(Scheme):
    """The one way to join feature maps: its workload says all."""

    template: ClassVar[str] = "join"


# Here, not in the templates' own files: databases are read where no compiler is installed.
SCHEMES: dict[str, type[Scheme]] = {
    cls.template: cls
    for cls in (
        DirectScheme,
        DepthwiseScheme,
        GroupedScheme,
        NchwScheme,
        WinogradScheme,
        PointwiseScheme,
        StrassenScheme,
        DotScheme,
        MatrixScheme,
        SplitScheme,
        TransformScheme,
        JoinScheme,
    )
}


def register_scheme(cls: type[Scheme]) -> None:
    """Let `scheme_from_json` know the schemes of a template, if it does not.

    Raises
    ------
    ValueError
        If it knows others of that name.
    """
    if SCHEMES.setdefault(cls.template, cls) is not cls:
        raise ValueError(f"{cls.template} has other schemes than {cls.__name__}")


def unregister_scheme(cls: type[Scheme]) -> None:
    """Undo `register_scheme`."""
    SCHEMES.pop(cls.template, None)


def scheme_from_json(data: dict[str, Any]) -> Scheme:
    """Inverse of `Scheme.to_json`.

    Raises
    ------
    ValueError
        If the template is unknown or a parameter is missing, extra or of the wrong type.
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
    """Whether a parameter, declared as ``kind``, may have this value."""
    if kind == "bool":
        return isinstance(value, bool)
    return type(value) is int and (0 if name in OPTIONAL else 1) <= value <= MAX_PARAMETER
