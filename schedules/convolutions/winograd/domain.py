"""The number system of a Winograd convolution: float32, exact integers or scaled integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.winograd import (
    edge_tiles,
    exact_filter,
    filters,
    scaled_integers,
)
from neocpu.schedules.convolutions.winograd.edge_tiles import EdgeTiles
from neocpu.schedules.convolutions.winograd.filters import Filter
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The element types of transformed data, weights and sums, and the transforms, in which data
    have the type ``pixels``, and sums ``results``. Integers stand for themselves (`exact_filter`)
    or for floats (`scaled_integers`).
    """

    numerics: Numerics
    pixels: str
    results: str
    is_exact: bool = False
    is_scaled: bool = False

    @property
    def is_of_integers(self) -> bool:
        return self.is_exact or self.is_scaled

    @property
    def group(self) -> int:
        """The number of adjacent input channels whose products one instruction adds to a sum."""
        return bytes_of(self.numerics.sum) // bytes_of(self.numerics.data)

    def tiles(self, kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, ...]:
        """Return the tile sizes for a kernel; none if the kernel has no transform."""
        if self.is_exact:
            return (exact_filter.TILE,) if (kernel, stride) == (exact_filter.KERNEL, (1, 1)) else ()
        if self.is_scaled:
            return scaled_integers.tiles(kernel, stride)
        return filters.tiles_of(kernel, stride)

    def filters(
        self, tile: int, kernel: tuple[int, int], stride: tuple[int, int]
    ) -> tuple[Filter, Filter]:
        if self.is_exact:
            assert tile in self.tiles(kernel, stride), (tile, kernel, stride)
            return exact_filter.FILTERS
        if self.is_scaled:
            return scaled_integers.filters(tile, kernel)
        return filters.filters(tile, kernel, stride)

    def edge_tiles(self, tile: int, workload: Conv2dWorkload) -> EdgeTiles | None:
        """Return the smaller tiles at an image's ends; None where there can be none."""
        if not self.is_exact or workload.dilation != (1, 1):
            return None
        output = workload.out_height, workload.out_width
        return edge_tiles.edge_tiles(exact_filter.FILTERS, workload.batch, output)

    def finished(self, sums: Any) -> Any:
        """Return the convolution's sums for a vector of the output transform's results."""
        return exact_filter.without_factor(sums) if self.is_exact else sums


_SHORT: Final = Numerics(data="int16", weights="int16", sum="int32", output="int32")
INTEGERS: Final = Domain(numerics=_SHORT, pixels="int16", results="int32", is_exact=True)
SCALED: Final = Domain(numerics=_SHORT, pixels="float32", results="float32", is_scaled=True)


def domain_of(workload: Conv2dWorkload) -> Domain:
    numerics = workload.numerics
    if (numerics.data, numerics.weights) == ("uint8", "int8"):
        return INTEGERS
    if (numerics.data, numerics.weights) == (BFLOAT16, BFLOAT16):
        return SCALED
    return Domain(numerics=numerics, pixels=numerics.data, results=numerics.sum)


def proof(workload: Conv2dWorkload) -> SumBound | None:
    """Return the bound that proves a convolution of integers exact or not; None for floats."""
    if not domain_of(workload).is_exact:
        return None
    return exact_filter.bound_of_any(workload.in_channels * math.prod(workload.kernel))
