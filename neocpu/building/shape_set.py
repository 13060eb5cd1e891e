"""Join artifacts of one model, each for one signature, into one for all of them.

Their kernels come into one table: equal code once, other code under distinct names. Packed weights
that are equal byte for byte are stored once. Of weights that differ only in their packing one is
stored, and the others are made from it (`building.weight_packing`).
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from neocpu.building.elf import read_elf
from neocpu.building.link import link_artifact, place
from neocpu.building.program import CompiledKernel
from neocpu.building.weight_packing import (
    PackedArray,
    Packing,
    PackingKernels,
    find_packings,
    lay_out,
)
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import size
from neocpu.plan.plan import Plan
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.runtime.header import PACKING_FORMAT, SET_FORMAT, WEIGHTS_SECTION, ArtifactHeader
from neocpu.runtime.header_parts import Placement

MAX_HEADER: Final = 15 << 20
"""Bytes of a header; readers take 16 MiB of all that is neither code nor weights."""


@dataclass(frozen=True, slots=True)
class SetMember:
    """An artifact of one signature."""

    header: ArtifactHeader
    kernels: tuple[CompiledKernel, ...]
    path: Path  # artifact file, from which the weights are read
    # The weights that the first packed weights were made from, where that is known.
    origins: Sequence[WeightOrigin | None] = ()


def write_shape_set(
    members: Sequence[SetMember],
    path: Path,
    compile_packings: Callable[[Sequence[Packing]], PackingKernels],
    max_weights: int | None = None,
) -> ArtifactHeader:
    """Write an artifact file for several signatures of one model; the first represents it.

    Raises UsageError if the packed weights of all take more than ``max_weights`` bytes, or the
    set's header is too large; see also `write_artifact`.
    """
    table, store = _KernelTable(), _WeightStore()
    parts = [(each.header, table.add(each.kernels), store.add(each)) for each in members]
    if max_weights is not None and store.total > max_weights:
        raise UsageError(
            f"--max-weights {size(max_weights)} is too small: the packed weights of all "
            f"{len(members)} shapes together take {size(store.total)}; allow more, or "
            "give fewer shapes"
        )
    packings = find_packings(store.arrays)
    packing = compile_packings(packings) if packings else PackingKernels((), ())
    names = table.add(packing.kernels)
    laid = lay_out(store.arrays, packings, [names[name] for name in packing.names])
    headers = [_joined(header, own, [laid.places[n] for n in ns]) for header, own, ns in parts]
    header = replace(
        headers[0],
        others=tuple(headers[1:]),
        prologue=laid.prologue,
        format=SET_FORMAT if laid.prologue is None else PACKING_FORMAT,
    )
    if len(header.encode()) > MAX_HEADER:
        header = replace(_terse(header), others=tuple(map(_terse, header.others)))
    if len(header.encode()) > MAX_HEADER:
        raise UsageError(
            f"{len(members)} shapes of {header.name} need a header of more than "
            f"{size(MAX_HEADER)}, which a file cannot have: give fewer shapes"
        )
    link_artifact(table.kernels, place(laid.stored), laid.stored, header, path)
    return header


def _joined(
    header: ArtifactHeader, names: Mapping[str, str], places: Sequence[Placement]
) -> ArtifactHeader:
    """Return a member's header with its kernels and weights where the set has them."""
    calls = tuple((names[kernel], tensors) for kernel, tensors in header.calls)
    weights = tuple(
        replace(weight, offset=found.offset)
        for weight, found in zip(header.weights, places, strict=True)
    )
    return replace(header, calls=calls, weights=weights).with_plan(_renamed(header.plan, names))


def _terse(header: ArtifactHeader) -> ArtifactHeader:
    """Return a header whose plan omits the alternatives of its operators."""
    plan = header.plan
    ops = tuple(replace(op, alternatives=()) for op in plan.ops)
    return header.with_plan(replace(plan, ops=ops))


def _renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    def renamed(kernel: str | None) -> str | None:
        return None if kernel is None else names.get(kernel, kernel)

    return replace(
        plan,
        ops=tuple(replace(op, kernel=renamed(op.kernel)) for op in plan.ops),
        transforms=tuple(replace(one, kernel=renamed(one.kernel)) for one in plan.transforms),
        kernels=tuple(replace(one, name=names.get(one.name, one.name)) for one in plan.kernels),
    )


class _KernelTable:
    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str] = {}
        self._kernels: dict[str, CompiledKernel] = {}

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        return tuple(self._kernels[name] for name in sorted(self._kernels))

    def add(self, kernels: Sequence[CompiledKernel]) -> dict[str, str]:
        """Add a member's kernels; return the name here of each, by its name there."""
        names = {}
        for each in kernels:
            kernel = each.kernel
            key = (each.code, kernel.sizes, kernel.types, kernel.results, each.launches)
            if key not in self._known:
                self._known[key] = name = self._free(kernel.name)
                self._kernels[name] = replace(each, kernel=replace(kernel, name=name))
            names[kernel.name] = self._known[key]
        return names

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._kernels:
            number += 1
            free = f"{name}_shape{number}"
        return free


class _WeightStore:
    """The packed weights of all members, without duplicates; their bytes lie in members' files."""

    def __init__(self) -> None:
        self.arrays: list[PackedArray] = []
        self._known: dict[object, int] = {}

    @property
    def total(self) -> int:
        return sum(array.data.nbytes for array in self.arrays)

    def add(self, member: SetMember) -> list[int]:
        with open(member.path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        section = read_elf(memoryview(data)).find(WEIGHTS_SECTION)
        assert section is not None
        content = np.frombuffer(data, np.uint8)
        numbers = []
        for weight, origin in zip_longest(member.header.weights, member.origins):
            array = content[section.offset + weight.offset : section.offset + weight.end]
            packed = PackedArray(array, weight.dtype, weight.shape, origin)
            key = packed.made_of or hashlib.sha256(array.data).digest()
            if key not in self._known:
                self._known[key] = len(self.arrays)
                self.arrays.append(packed)
            numbers.append(self._known[key])
        return numbers
