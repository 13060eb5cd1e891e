"""The memory that kernels are timed on.

Weights are as cold as in a network, where all others pass through the caches between two runs of a
layer at batch 1: each call reads them at another place of a pool that exceeds most last-level
caches. Data and output stay in place: in a network they were just written or will soon be read.
(Measured on a Zen 3, one thread: ResNet-50's convolutions take 95.9 ms in the network, 95.9 ms in
sum with cold weights and 93.9 ms with warm ones. These flatter Winograd, which has the most of
them, by up to 10 %; cold ones make it 4 % too slow at most.)

Kernels that only move feature maps would run from the cores' own caches back to back on the same
bytes. In a network, another core wrote half of what a core reads, and what it writes was last used
some operators ago. So they take turns between places that fit the last-level cache only. (Measured
on a Zen 3, two threads: 0.8 MB take 6 to 24 us back to back, 25 us in turns and 24 us between two
convolutions.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.search.measuring.kernel_calls import ALIGNMENT, Argument

POOL_BYTES = 128 << 20
# Weights that fill more than half of the pool would be at the same place again and again, and
# caches of 32 MB keep a part of it: 75 MB of them then came at 56 GB/s from a memory of 42 GB/s.
FEWEST_PLACES = 2
Shape: TypeAlias = tuple[tuple[int, ...], str]  # and dtype
Bytes: TypeAlias = NDArray[np.uint8]


class Buffers:
    """Buffers of random numbers that grow as kernels need them, and are filled only then."""

    def __init__(self) -> None:
        self._inputs: list[Bytes] = []  # never outputs, so their numbers stay normal
        self._output = self._pool = self._places = _aligned(0)

    def arguments(self, shapes: Sequence[Shape]) -> list[Argument]:
        *inputs, output = shapes
        self._inputs += [_aligned(0)] * (len(inputs) - len(self._inputs))
        for index, shape in enumerate(inputs):
            self._inputs[index] = _grown(self._inputs[index], size_of(shape))
        self._output = _grown(self._output, size_of(output))
        buffers = [*self._inputs[: len(inputs)], self._output]
        return [_argument(buffer, shape) for buffer, shape in zip(buffers, shapes, strict=True)]

    def cold(self, shape: Shape) -> Argument:
        """Return a tensor of ``shape`` that each call reads at another place of the pool."""
        size = aligned_size_of(shape)
        self._pool = _grown(self._pool, pool_bytes(size))
        return replace(_argument(self._pool, shape), stride=size, places=len(self._pool) // size)

    def in_turns(self, shapes: Sequence[Shape], least: int) -> list[Argument]:
        """Return tensors of ``shapes`` at several places, which take ``least`` bytes or more."""
        *starts, total = accumulate(map(aligned_size_of, shapes), initial=0)
        count = ceil_div(least, total)
        self._places = _grown(self._places, count * total)
        return [
            replace(_argument(self._places[start:], shape), stride=total, places=count)
            for start, shape in zip(starts, shapes, strict=True)
        ]


class Turns:
    """The places of a pool that calls take, one candidate's after those of the last."""

    def __init__(self) -> None:
        self._offset = 0

    def take(self, calls: int, stride: int, places: int) -> int:
        """Return the first of ``calls`` places, ``stride`` bytes apart, read longest ago."""
        first = ceil_div(self._offset, stride)
        self._offset = (first + calls) % places * stride
        return first


def pool_bytes(size: int, least: int = POOL_BYTES) -> int:
    """Return the bytes of a pool for weights of so many."""
    return max(least, FEWEST_PLACES * size)


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of ``array`` that kernels may read or write."""
    copy = _aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _grown(buffer: Bytes, size: int) -> Bytes:
    """Return ``buffer``, or a larger one of ``size`` bytes if it is smaller.

    The new one has float32 numbers that are neither zeros nor denormals, which are slow.
    """
    if len(buffer) >= size:
        return buffer
    block = np.random.default_rng(0).standard_normal(1 << 16, np.float32).view(np.uint8)
    buffer = _aligned(size)
    for start in range(0, size, len(block)):
        buffer[start : start + len(block)] = block[: size - start]
    return buffer


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def size_of(shape: Shape) -> int:
    extents, dtype = shape
    return math.prod(extents) * bytes_of(dtype)


def aligned_size_of(shape: Shape) -> int:
    """Return bytes, up to the next place where a buffer may begin."""
    return ceil_div(size_of(shape), ALIGNMENT) * ALIGNMENT


def _argument(buffer: Bytes, shape: Shape) -> Argument:
    extents, dtype = shape
    return Argument(address=buffer.ctypes.data, shape=extents, dtype=dtype)
