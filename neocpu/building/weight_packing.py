"""Choose which weights of a set of shapes are in its file, and which are packed at load time.

Plans for several shapes may read one weight in several packings. The file holds it once, in the
smallest packing that any plan reads and that only moves weights, or else as in the model. Kernels
of the artifact make the other packings from it, equal to the bit to those of the compiler.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.ir import GlobalVar

from neocpu.building.link import offsets_of
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.program import CompiledKernel, Kernel
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.host import usable_cpus
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.runtime.header_parts import Placement, Prologue
from neocpu.schedules.convolutions.weight_kernels import OIHW, PackedWeights, lower_packing
from neocpu.schedules.vocabulary.layout import KernelLayout
from neocpu.schedules.vocabulary.target import CpuTarget

LEAST_BYTES: Final = 1 << 16
"""Bytes from which a packing is worth a kernel that makes it."""
MOST_ELEMENTS: Final = 1 << 31
"""Elements of a packing that kernels can address."""

AnyArray: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedArray:
    """One of a set's weights."""

    data: AnyArray  # bytes, in any shape
    dtype: str
    shape: tuple[int, ...]  # shape in which plans read it
    origin: WeightOrigin | None = None  # weight that it was packed from, if that is known

    @property
    def made_of(self) -> tuple[object, ...] | None:
        """A key that decides its bytes, if the origin is known."""
        if self.origin is None:
            return None
        return self.origin.digest, self.origin.packed(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Packing:
    """A weight that is packed when the set is loaded."""

    made: int  # the number of the made weight among the arrays
    reads: tuple[int, ...]  # numbers of the weight it is made from and, if any, of its factors
    source: PackedWeights  # the packing that is read
    packed: PackedWeights  # the packing that is made


def find_packings(arrays: list[PackedArray]) -> tuple[Packing, ...]:
    """Choose the weights to pack at load time; append to ``arrays`` what only that reads."""
    same_origin: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, array in enumerate(arrays):
        if array.origin is not None and array.data.nbytes < MOST_ELEMENTS * bytes_of(array.dtype):
            same_origin[array.origin.digest].append(number)
    factors: dict[Any, int] = {}
    found: list[Packing] = []
    for numbers in same_origin.values():
        found += _packings_of(arrays, numbers, factors)
    return tuple(found)


def _packings_of(
    arrays: list[PackedArray], numbers: Sequence[int], factors: dict[Any, int]
) -> list[Packing]:
    packed = {number: _packed(arrays[number]) for number in numbers}
    moved = [n for n in numbers if isinstance(packed[n].layout, KernelLayout)]
    stored = min(moved, key=lambda n: arrays[n].data.nbytes, default=None)
    made = [n for n in numbers if n != stored and arrays[n].data.nbytes >= LEAST_BYTES]
    if made and stored is None:
        one = arrays[made[0]]
        assert one.origin is not None
        assert one.origin.transformed is not None
        whole = np.ascontiguousarray(one.origin.transformed)
        stored = len(arrays)
        arrays.append(PackedArray(whole, one.dtype, whole.shape))
        packed[stored] = PackedWeights(one.origin.oihw, one.dtype, OIHW, whole.shape)
    found = []
    for number in made:
        assert stored is not None
        beside = _factors(arrays, number, packed[number], factors)
        found.append(Packing(number, (stored, *beside), packed[stored], packed[number]))
    return found


def _packed(array: PackedArray) -> PackedWeights:
    assert array.origin is not None
    return array.origin.packed(array.dtype, array.shape)


def _factors(
    arrays: list[PackedArray], number: int, packed: PackedWeights, known: dict[Any, int]
) -> tuple[int, ...]:
    """Return the number of the factors that transform a weight, if it is transformed."""
    if packed.factors is None:
        return ()
    _, dtype = packed.factors
    factors = packed.factors_in(arrays[number].data.view(packed.dtype).reshape(packed.shape))
    key = dtype, factors.shape, factors.tobytes()
    if key not in known:
        known[key] = len(arrays)
        arrays.append(PackedArray(factors, dtype, factors.shape))
    return (known[key],)


@dataclass(frozen=True, slots=True, eq=False)
class PackingKernels:
    """The kernels of packings, without duplicates."""

    names: tuple[str, ...]  # name of each packing's kernel
    kernels: tuple[CompiledKernel, ...]

    @classmethod
    def compile(
        cls, packings: Sequence[Packing], target: CpuTarget, generations: OneAtATime
    ) -> PackingKernels:
        names: dict[tuple[PackedWeights, PackedWeights], str] = {}
        kernels: list[Kernel] = []
        functions: dict[GlobalVar, Any] = {}
        for each in packings:
            key = each.source, each.packed
            if key not in names:
                names[key] = f"pack_weights_{len(names)}"
                kernels.append(_kernel(names[key], each))
                functions[GlobalVar(names[key])] = lower_packing(*key, target)
        mod = tvm.IRModule(functions)
        with generations.start(mod, target, usable_cpus()) as generation:
            codes = generation.codes()
        found = ((kernel, codes[kernel.name]) for kernel in kernels)
        return cls(
            tuple(names[each.source, each.packed] for each in packings),
            tuple(CompiledKernel(kernel, code.launches, code.code) for kernel, code in found),
        )


def _kernel(name: str, packing: Packing) -> Kernel:
    source, packed = packing.source, packing.packed
    transforms = [] if packed.factors is None else [packed.factors]
    factors = [math.prod(shape) * bytes_of(dtype) for shape, dtype in transforms]
    sizes = (source.nbytes, *factors, packed.nbytes)
    types = (source.dtype, *(dtype for _, dtype in transforms), packed.dtype)
    return Kernel(name, sizes, types, results=1)


@dataclass(frozen=True, slots=True, eq=False)
class LaidOut:
    """The places of all weights of a set."""

    stored: tuple[AnyArray, ...]  # arrays in the file, in its order
    places: Mapping[int, Placement]  # place of each array, by its number
    # The calls that pack the weights that are not in the file; None if all are.
    prologue: Prologue | None


def lay_out(
    arrays: Sequence[PackedArray], packings: Sequence[Packing], names: Sequence[str]
) -> LaidOut:
    """Find a place for each of a set's weights. `names` has the kernel of each packing."""
    made = [each.made for each in packings]
    stored = [number for number in range(len(arrays)) if number not in {*made}]
    places, size = _placed(arrays, stored, 0)
    if not packings:
        return LaidOut(tuple(arrays[number].data for number in stored), places, None)
    made_places, end = _placed(arrays, made, size)
    reads = list(dict.fromkeys(number for each in packings for number in each.reads))
    positions = {number: position for position, number in enumerate((*reads, *made))}
    prologue = Prologue(
        offset=size,
        made_bytes=end - size,
        weights=tuple(places[number] for number in reads),
        made=tuple(
            replace(made_places[number], offset=made_places[number].offset - size)
            for number in made
        ),
        calls=tuple(
            (name, tuple(positions[number] for number in (*each.reads, each.made)))
            for name, each in zip(names, packings, strict=True)
        ),
    )
    contents = tuple(arrays[number].data for number in stored)
    return LaidOut(contents, places | made_places, prologue)


def _placed(
    arrays: Sequence[PackedArray], numbers: Sequence[int], start: int
) -> tuple[dict[int, Placement], int]:
    *offsets, end = offsets_of((arrays[number].data.nbytes for number in numbers), start)
    return {
        number: Placement(offset, arrays[number].dtype, arrays[number].shape)
        for number, offset in zip(numbers, offsets, strict=True)
    }, end
