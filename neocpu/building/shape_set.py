"""Join artifacts of one model, each for one signature, into one for all of them.

Their kernels come into one table: equal code once, and under names that tell the others apart. Of
their packed weights what is equal byte for byte is stored once.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.building.elf import read_elf
from neocpu.building.kernel_table import CompiledKernel
from neocpu.building.link import AnyArray, link_artifact, place
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import size
from neocpu.runtime.header import SET_FORMAT, WEIGHTS_SECTION, ArtifactHeader, Placement

MAX_HEADER: Final = 15 << 20
"""Bytes of a header; readers take 16 MiB of all that is neither code nor weights."""


@dataclass(frozen=True, slots=True)
class SetMember:
    """An artifact of one signature.

    Attributes
    ----------
    header : ArtifactHeader
    kernels : tuple of CompiledKernel
    path : Path
        Where the artifact is, of which the weights are read.
    """

    header: ArtifactHeader
    kernels: tuple[CompiledKernel, ...]
    path: Path


def write_shape_set(
    members: Sequence[SetMember], path: Path, max_weights: int | None = None
) -> ArtifactHeader:
    """Write an artifact file for several signatures of one model.

    Parameters
    ----------
    members : sequence of SetMember
        In the order in which they are told; the first is what is shown of an artifact.
    path : Path
        The file to write.
    max_weights : int, optional
        Bytes that the packed weights of all may take together.

    Raises
    ------
    UsageError
        If they take more, the set has too much to tell, or as `write_artifact`.
    ArtifactError
        As `write_artifact`.
    """
    table, store = _KernelTable(), _WeightStore()
    headers = [_joined(each, table.add(each.kernels), store.add(each)) for each in members]
    if max_weights is not None and store.total > max_weights:
        raise UsageError(
            f"--max-weights {size(max_weights)} is too small: the packed weights of all "
            f"{len(members)} shapes together take {size(store.total)}; give fewer shapes"
        )
    header = replace(headers[0], others=tuple(headers[1:]), format=SET_FORMAT)
    if len(header.encode()) > MAX_HEADER:
        raise UsageError(
            f"{len(members)} shapes of {header.name} have too much to tell for one file "
            f"(more than {size(MAX_HEADER)}): give fewer shapes"
        )
    link_artifact(table.kernels, place(store.arrays), store.arrays, header, path)
    return header


def _joined(
    member: SetMember, names: Mapping[str, str], places: Sequence[Placement]
) -> ArtifactHeader:
    """Return a member's header with its kernels and weights where the set has them."""
    header = member.header
    calls = tuple((names[kernel], tensors) for kernel, tensors in header.calls)
    plan = {key: _renamed(value, names) for key, value in header.plan.items()}
    return replace(header, calls=calls, weights=tuple(places), plan=plan)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a plan with other names of kernels, where it is a list that names some."""
    if not isinstance(value, list):
        return value
    return [
        {**each, "kernel": names[each["kernel"]]}
        if isinstance(each, dict) and each.get("kernel") in names
        else each
        for each in value
    ]


class _KernelTable:
    """The kernels of all members."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], str] = {}
        self._kernels: dict[str, CompiledKernel] = {}

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """In the order of their names."""
        return tuple(self._kernels[name] for name in sorted(self._kernels))

    def add(self, kernels: Sequence[CompiledKernel]) -> dict[str, str]:
        """Add a member's; return what each is called here, by its name there."""
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
        """Return a name that no kernel has yet."""
        number, free = 1, name
        while free in self._kernels:
            number += 1
            free = f"{name}_shape{number}"
        return free


class _WeightStore:
    """The packed weights of all members, each once.

    Attributes
    ----------
    arrays : list of array
        Bytes that lie in the members' files.
    """

    def __init__(self) -> None:
        self.arrays: list[AnyArray] = []
        self._known: dict[bytes, int] = {}

    @property
    def total(self) -> int:
        """Bytes of all."""
        return sum(array.nbytes for array in self.arrays)

    def add(self, member: SetMember) -> list[Placement]:
        """Add a member's weights; return where they lie."""
        with open(member.path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        section = read_elf(memoryview(data)).find(WEIGHTS_SECTION)
        assert section is not None
        content = np.frombuffer(data, np.uint8)
        places = []
        for weight in member.header.weights:
            array = content[section.offset + weight.offset : section.offset + weight.end]
            digest = hashlib.sha256(array.data).digest()
            if digest not in self._known:
                self._known[digest] = len(self.arrays)
                self.arrays.append(array)
            places.append((weight, self._known[digest]))
        offsets = [each.offset for each in place(self.arrays)]
        return [replace(weight, offset=offsets[number]) for weight, number in places]
