"""What a Winograd convolution computes in: float32, or integers that lose nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.winograd import exact_filter, exactness, filters
from neocpu.schedules.convolutions.winograd.filters import Filter
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True)
class Domain:
    """Element types of transformed data, weights and their sums, and the transforms.

    Attributes
    ----------
    numerics : Numerics
        Of what is multiplied and added up.
    is_exact : bool
        Whether it is of integers, by `exact_filter`.
    """

    numerics: Numerics
    is_exact: bool

    @property
    def group(self) -> int:
        """Neighbouring input channels whose products one instruction adds to a sum."""
        return bytes_of(self.numerics.sum) // bytes_of(self.numerics.data)

    def tiles(self, kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, ...]:
        """Return the tiles offered for a kernel; none for one that has no transform."""
        if not self.is_exact:
            return filters.tiles_of(kernel, stride)
        return (exact_filter.TILE,) if (kernel, stride) == (exact_filter.KERNEL, (1, 1)) else ()

    def filters(
        self, tile: int, kernel: tuple[int, int], stride: tuple[int, int]
    ) -> tuple[Filter, Filter]:
        """Return the filters along rows and columns."""
        if not self.is_exact:
            return filters.filters(tile, kernel, stride)
        assert tile in self.tiles(kernel, stride), (tile, kernel, stride)
        return exact_filter.FILTERS

    def finished(self, sums: Any) -> Any:
        """Return a vector of what the output transform makes as the convolution's sums."""
        return exact_filter.without_factor(sums) if self.is_exact else sums


INTEGERS: Final = Domain(Numerics("int16", "int16", "int32", "int32"), is_exact=True)


def domain_of(workload: Conv2dWorkload) -> Domain:
    """Return what a convolution is computed in."""
    numerics = workload.numerics
    is_bytewise = (numerics.data, numerics.weights) == ("uint8", "int8")
    return INTEGERS if is_bytewise else Domain(numerics, is_exact=False)


def proof(workload: Conv2dWorkload) -> SumBound | None:
    """Return why a convolution of integers is exact, or is not; None of floats, which round."""
    if not domain_of(workload).is_exact:
        return None
    return exactness.bound_of_any(workload.in_channels * math.prod(workload.kernel))
