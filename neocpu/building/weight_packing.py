"""Which weights of a set of shapes are in its file, and which are packed when it is loaded.

Plans for several shapes may read one weight in several packings, and Winograd's are several times
as large as the weight. The file holds it once, in the smallest packing that any plan reads and that
moves weights only; if every plan reads it transformed, as the model has it. What else plans read is
made of that by kernels of the artifact, to the bit as the compiler would have packed it.
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

from neocpu.building.kernel_table import CompiledKernel
from neocpu.building.link import offsets_of
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.program import Kernel
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.host import usable_cpus
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.runtime.header_parts import Placement, Prologue
from neocpu.schedules.convolutions.weight_kernels import OIHW, PackedWeights, lower_packing
from neocpu.schedules.vocabulary.layout import KernelLayout
from neocpu.schedules.vocabulary.target import CpuTarget

LEAST_BYTES: Final = 1 << 16
"""Of a packing that is worth a kernel to make it."""
MOST_ELEMENTS: Final = 1 << 31
"""Of a packing in which kernels can find each."""

AnyArray: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedArray:
    """One of a set's weights.

    Attributes
    ----------
    data : array
        In any form.
    dtype : str
    shape : tuple of int
        As plans read it.
    origin : WeightOrigin or None
        What it was packed of, if that is known.
    """

    data: AnyArray
    dtype: str
    shape: tuple[int, ...]
    origin: WeightOrigin | None = None

    @property
    def made_of(self) -> tuple[object, ...] | None:
        """What decides its bytes, where that is known."""
        if self.origin is None:
            return None
        return self.origin.digest, self.origin.packed(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Packing:
    """A weight that is packed when the set is loaded.

    Attributes
    ----------
    made : int
        Its number among the arrays.
    reads : tuple of int
        Of the weight it is made of and, transformed, its factors.
    source, packed : PackedWeights
        What is read, and made.
    """

    made: int
    reads: tuple[int, ...]
    source: PackedWeights
    packed: PackedWeights


def find_packings(arrays: list[PackedArray]) -> tuple[Packing, ...]:
    """Choose what is packed when a set is loaded; append to its ``arrays`` what only that reads."""
    alike: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, array in enumerate(arrays):
        if array.origin is not None and array.data.nbytes < MOST_ELEMENTS * bytes_of(array.dtype):
            alike[array.origin.digest].append(number)
    factors: dict[Any, int] = {}
    found: list[Packing] = []
    for numbers in alike.values():
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
    """Return the number of what transforms weights, if they are to be."""
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
    """The kernels of packings, those of equal code once.

    Attributes
    ----------
    names : tuple of str
        Of each packing's.
    kernels : tuple of CompiledKernel
    """

    names: tuple[str, ...]
    kernels: tuple[CompiledKernel, ...]

    @classmethod
    def compile(
        cls, packings: Sequence[Packing], target: CpuTarget, generations: OneAtATime
    ) -> PackingKernels:
        """Generate their code, as one of ``generations``.

        Raises
        ------
        UnsupportedError, NeoCPUError
            As `CodeGeneration.codes`.
        """
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
    given = [] if packed.factors is None else [packed.factors]
    factors = [math.prod(shape) * bytes_of(dtype) for shape, dtype in given]
    sizes = (source.nbytes, *factors, packed.nbytes)
    return Kernel(name, sizes, (source.dtype, *(dtype for _, dtype in given), packed.dtype), 1)


@dataclass(frozen=True, slots=True, eq=False)
class LaidOut:
    """Where all weights of a set lie.

    Attributes
    ----------
    stored : tuple of array
        What is in the file, in its order.
    places : dict of int to Placement
        Of each array, by its number.
    prologue : Prologue or None
        What packs those that are not in the file; None if all are.
    """

    stored: tuple[AnyArray, ...]
    places: Mapping[int, Placement]
    prologue: Prologue | None


def lay_out(
    arrays: Sequence[PackedArray], packings: Sequence[Packing], names: Sequence[str]
) -> LaidOut:
    """Find a place for each of a set's weights.

    Parameters
    ----------
    packings : sequence of Packing
        What `find_packings` chose of them.
    names : sequence of str
        The kernel of each.
    """
    made = [each.made for each in packings]
    stored = [number for number in range(len(arrays)) if number not in {*made}]
    places, size = _placed(arrays, stored, 0)
    if not packings:
        return LaidOut(tuple(arrays[number].data for number in stored), places, None)
    behind, end = _placed(arrays, made, size)
    reads = list(dict.fromkeys(number for each in packings for number in each.reads))
    positions = {number: position for position, number in enumerate((*reads, *made))}
    prologue = Prologue(
        offset=size,
        made_bytes=end - size,
        weights=tuple(places[number] for number in reads),
        made=tuple(replace(behind[number], offset=behind[number].offset - size) for number in made),
        calls=tuple(
            (name, tuple(positions[number] for number in (*each.reads, each.made)))
            for name, each in zip(names, packings, strict=True)
        ),
    )
    return LaidOut(tuple(arrays[number].data for number in stored), places | behind, prologue)


def _placed(
    arrays: Sequence[PackedArray], numbers: Sequence[int], start: int
) -> tuple[dict[int, Placement], int]:
    """Return where arrays lie one after the other, and the end of the last."""
    *offsets, end = offsets_of((arrays[number].data.nbytes for number in numbers), start)
    return {
        number: Placement(offset, arrays[number].dtype, arrays[number].shape)
        for number, offset in zip(numbers, offsets, strict=True)
    }, end
