"""The division of a 1x1 convolution into blocks of two register tiles each way, and strips."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.pointwise_tiling import Tiling as PixelTiling
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import PointwiseScheme, StrassenScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The products of a block, and the sums of pixels that are computed for them.
PRODUCTS: Final = 7
PIXEL_SUMS: Final = 4


@dataclass(frozen=True, slots=True)
class Tiling:
    """The blocks, strips and groups of a workload.

    A block is two register tiles of pixels by two of output channels, and its sums run over two
    halves of the input channels. Input channels after both halves are multiplied directly. The
    register tiles of ``tiles``, a 1x1 convolution of one image, are these blocks.
    """

    workload: Conv2dWorkload
    scheme: StrassenScheme
    lanes: int
    threads: int = 1
    tiles: PixelTiling = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        s, channels = self.scheme, self.chunks * self.lanes
        block = PointwiseScheme(
            s.ic_bn,
            s.oc_bn,
            reg_n=2 * s.reg_n,
            reg_oc=2 * s.reg_oc,
            ic_block=channels,
            strip=s.strip,
            oc_split=s.oc_split,
        )
        # Images are tasks already: each is only cut further if they leave threads without one.
        threads = self.threads // math.gcd(self.threads, self.workload.batch)
        image = replace(self.workload, batch=1)
        tiles = PixelTiling(image, block, self.lanes, threads, by_place=True)
        object.__setattr__(self, "tiles", tiles)

    @property
    def vectors(self) -> int:
        """The number of vectors of output channels in one register tile."""
        return self.scheme.reg_oc // self.lanes

    @property
    def chunks(self) -> int:
        """The number of vectors of input channels."""
        return ceil_div(self.workload.in_channels, self.lanes)

    @property
    def half(self) -> int:
        """The number of vectors of input channels in each half."""
        return self.scheme.ic_half // self.lanes

    @property
    def rest(self) -> int:
        return self.workload.in_channels - 2 * self.scheme.ic_half

    @property
    def packs(self) -> bool:
        """Whether the pixels themselves are copied too, because a prologue is applied to them."""
        return bool(self.workload.prologue)

    @property
    def operands(self) -> int:
        """The number of pixels, and of their sums, that are kept for the products of a block."""
        return PRODUCTS if self.packs else PIXEL_SUMS

    @property
    def rest_row(self) -> int:
        """The first row of a block's packed weights for the remaining channels, after all products.

        The rows of the first tile of output channels precede those of the second.
        """
        return PRODUCTS * self.scheme.ic_half

    @property
    def factor_row(self) -> int:
        """The first row of the factors of pixels: a number for each channel of the second half."""
        return self.rest_row + 2 * self.rest

    @property
    def last_row(self) -> int:
        """The row of the factors of the second tile's sums."""
        return self.factor_row + ceil_div(self.scheme.ic_half, self.scheme.reg_oc)

    @property
    def weight_bytes(self) -> int:
        element = bytes_of(self.workload.numerics.weights)
        return self.tiles.oc_blocks * (self.last_row + 1) * self.scheme.reg_oc * element

    @property
    def panel_bytes(self) -> int:
        """The bytes of pixels and their sums in the longest strip."""
        vectors = self.tiles.strip_blocks * self.scheme.reg_n
        vectors *= 2 * self.chunks + self.operands * self.half
        return vectors * self.lanes * bytes_of(self.workload.numerics.data)
