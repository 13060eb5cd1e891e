"""The JSON header of an artifact: what it computes, for which machine, with which libraries."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.units import size
from neocpu.runtime.artifact_file.elf import MACHINES
from neocpu.runtime.artifact_file.header_text import accuracy, screen, summary, tensors
from neocpu.runtime.artifact_file.strict_json import (
    FieldError,
    array,
    boolean,
    integer,
    member,
    string,
)
from neocpu.tensor_spec import TensorSpec, group_rows

Buffer: TypeAlias = memoryview | mmap.mmap

Call: TypeAlias = tuple[str, tuple[int, ...]]
"""A kernel's name, and the tensors it takes: first come inputs, then weights, then activations."""

FORMAT: Final = 6
"""Version of layout and header: raised when an older runtime could not read a newer file."""

HEADER_SECTION: Final = ".neocpu"
WEIGHTS_SECTION: Final = ".neocpu.weights"
DIGEST_SECTION: Final = ".neocpu.sha256"

WEIGHT_ALIGN: Final = 128
"""Bytes each weight starts on a multiple of: two cache lines, the adjacent-line prefetch unit."""

WEIGHTS_PIECE: Final = 4 << 20
"""Bytes of weights that are hashed at a time: several threads share the pieces."""

ARGUMENT_ALIGN: Final = 64
"""Bytes each argument of generated code starts on a multiple of: TVM's ``kAllocAlignment``."""

# What a header may say. Far more than any network needs, and few enough that nothing overflows.
MAX_HEADER: Final = 16 << 20
"""Bytes of everything after the weights: header, section tables and digests."""
MAX_TENSORS: Final = 1 << 16
MAX_SPECS: Final = 4096
"""Inputs, and outputs."""
MAX_RANK: Final = 32
MAX_BYTES: Final = 1 << 40
MAX_THREADS: Final = 1024
"""No CPU has as many cores; a pool of more would take a machine down."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one array lies in a block of memory: a weight, or a tensor between two kernels.

    Attributes
    ----------
    offset : int
        Bytes from the start of the weights section, a multiple of `WEIGHT_ALIGN`; or of the arena.
    dtype : str
        A numpy dtype name.
    shape : tuple of int
        C-contiguous, in the (packed) layout the compiled code reads.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.offset, self.dtype, list(self.shape)]

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """Return the array in ``buffer``, which it keeps alive."""
        return np.ndarray(self.shape, self.dtype, buffer, self.offset)


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactHeader:
    """Everything known of an artifact without loading it.

    Attributes
    ----------
    name : str
        The model's name.
    neocpu_version, tvm_version, ffi_version : str
        Versions of neocpu, apache-tvm and apache-tvm-ffi that compiled it: informative, because
        ``format`` is the contract.
    target : str
        Canonical target, such as ``llvm -mcpu=znver5``.
    machine : str
        ``x86_64`` or ``aarch64``.
    isa_features : tuple of str
        Instruction sets the code uses, in LLVM's names (``avx512f``).
    threads : int
        The thread count it was compiled for.
    inputs, outputs : tuple of TensorSpec
        In graph order.
    row_counts : tuple of int or None
        Of each output, the position in what ``main`` returns of the count of its rows (int64, one
        element); None where all rows count. Counts come after the outputs.
    weights : tuple of Placement
        In the weights section: the parameters of ``main`` after the inputs, in order.
    activations : tuple of Placement
        In the arena: the parameters of ``main`` after the weights, in order. They may overlap.
    arena_bytes : int
        Size of the memory that a module allocates for them.
    calls : tuple of Call
        Of kernels, in turn: what ``main`` does.
    returns : tuple of int
        Numbers of the tensors that ``main`` returns, as `Call` has them.
    plan : dict
        What ``neocpu explain`` prints; opaque here.
    format : int
        See `FORMAT`.
    """

    name: str
    neocpu_version: str
    tvm_version: str
    ffi_version: str
    target: str
    machine: str
    isa_features: tuple[str, ...]
    threads: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    row_counts: tuple[int | None, ...] = ()
    weights: tuple[Placement, ...] = ()
    activations: tuple[Placement, ...] = ()
    arena_bytes: int = 0
    calls: tuple[Call, ...] = ()
    returns: tuple[int, ...] = ()
    plan: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<neocpu.ArtifactHeader {self.summary}>"

    def __str__(self) -> str:
        weights = max((weight.end for weight in self.weights), default=0)
        versions = (
            f"neocpu {self.neocpu_version}, apache-tvm {self.tvm_version}, "
            f"apache-tvm-ffi {self.ffi_version}"
        )
        fields = [
            *(("input", text) for text in tensors(self.inputs)),
            *(("output", text) for text in tensors(self.outputs)),
            ("target", self.target),
            ("machine", self.machine),
            ("instructions", ", ".join(self.isa_features) or "no extensions"),
            ("threads", f"planned for {self.threads}"),
            ("weights", f"{size(weights)}, {len(self.weights)} of them"),
            ("activations", size(self.arena_bytes)),
            ("accuracy", accuracy(self.plan)),
            ("versions", versions),
            ("format", str(self.format)),
        ]
        return screen(self.name, fields)

    @property
    def summary(self) -> str:
        """The model's name, inputs, outputs and target, on one line."""
        return summary(self.name, self.inputs, self.outputs, self.target)

    @property
    def row_groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the outputs whose rows are counted together."""
        return group_rows(self.row_counts)

    @property
    def memory_bytes(self) -> int:
        """Bytes that a module allocates for its arena, its inputs and its outputs."""
        arrays = (*self.inputs, *self.outputs)
        return self.arena_bytes + sum(Placement(0, a.dtype, a.shape).end for a in arrays)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """`row_counts`, one for each output."""
        return self.row_counts or (None,) * len(self.outputs)

    def check_weights(self, size: int) -> None:
        """Check that the weights fill their section, one after the other.

        Parameters
        ----------
        size : int
            Bytes of the section.

        Raises
        ------
        FieldError
            Naming the one that does not.
        """
        _check_ends("weights", self.weights, size)
        end = 0
        for index, placement in enumerate(self.weights):
            if placement.offset != end:
                raise FieldError(f"weights[{index}][0]: {placement.offset} is not {end}")
            end = placement.end + -placement.end % WEIGHT_ALIGN
        if end != size:
            raise FieldError(f"weights: they take {end} bytes of {size}")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": self.format,
            "name": self.name,
            "versions": {
                "neocpu": self.neocpu_version,
                "apache-tvm": self.tvm_version,
                "apache-tvm-ffi": self.ffi_version,
            },
            "target": self.target,
            "machine": self.machine,
            "isa_features": list(self.isa_features),
            "threads": self.threads,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "row_counts": list(self.row_counts),
            "weights": [placement.to_json() for placement in self.weights],
            "activations": [placement.to_json() for placement in self.activations],
            "arena_bytes": self.arena_bytes,
            "calls": [[kernel, *tensors] for kernel, tensors in self.calls],
            "returns": list(self.returns),
            "plan": self.plan,
        }

    @classmethod
    def from_json(cls, data: Any) -> ArtifactHeader:
        """Inverse of `to_json`, for input that anybody may have written.

        Raises
        ------
        FieldError
            If a field is missing, of another type, or out of its range; the message names it.
        """
        header = cls(
            name=string(*member(data, "", "name")),
            neocpu_version=string(*member(*member(data, "", "versions"), "neocpu")),
            tvm_version=string(*member(*member(data, "", "versions"), "apache-tvm")),
            ffi_version=string(*member(*member(data, "", "versions"), "apache-tvm-ffi")),
            target=string(*member(data, "", "target")),
            machine=_machine(*member(data, "", "machine")),
            isa_features=tuple(string(*each) for each in _list(data, "isa_features")),
            threads=integer(*member(data, "", "threads"), 1, MAX_THREADS),
            inputs=_tensors(data, "inputs"),
            outputs=_tensors(data, "outputs"),
            row_counts=tuple(_row_count(*each) for each in _list(data, "row_counts")),
            weights=_placements(data, "weights", WEIGHT_ALIGN),
            activations=_placements(data, "activations", ARGUMENT_ALIGN),
            arena_bytes=integer(*member(data, "", "arena_bytes"), 0, MAX_BYTES),
            calls=tuple(_call(*each) for each in _list(data, "calls")),
            returns=tuple(_number(*each) for each in _list(data, "returns")),
            plan=_plan(*member(data, "", "plan")),
            format=integer(*member(data, "", "format"), FORMAT, FORMAT),
        )
        if not header.outputs:
            raise FieldError("outputs: there are none")
        _check_ends("activations", header.activations, header.arena_bytes)
        _check_row_counts(header)
        return header

    def encode(self) -> bytes:
        """Return the bytes of the header section: one line of JSON and a newline."""
        text = json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"


def _machine(value: Any, place: str) -> str:
    if value not in MACHINES.values():
        raise FieldError(f"{place}: not one of {', '.join(MACHINES.values())}")
    return string(value, place)


def _plan(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(f"{place}: not an object")
    return value


def _list(data: Any, name: str, most: int = MAX_TENSORS) -> list[tuple[Any, str]]:
    return array(*member(data, "", name), most)


def _tensors(data: Any, name: str) -> tuple[TensorSpec, ...]:
    specs = tuple(_tensor(*each) for each in _list(data, name, MAX_SPECS))
    seen: set[str] = set()
    for index, spec in enumerate(specs):
        if spec.name in seen:
            raise FieldError(f"{name}[{index}].name: there is another of this name")
        seen.add(spec.name)
    return specs


def _tensor(value: Any, place: str) -> TensorSpec:
    name = string(*member(value, place, "name"))
    dtype, shape = _kind(member(value, place, "dtype"), member(value, place, "shape"))
    bounded = "bounded" in value and boolean(*member(value, place, "bounded"))
    if bounded and not shape:
        raise FieldError(f"{place}.bounded: a scalar has no rows")
    return TensorSpec(name, dtype, shape, bounded)


def _placements(data: Any, name: str, align: int) -> tuple[Placement, ...]:
    return tuple(_placement(*each, align) for each in _list(data, name))


def _placement(value: Any, place: str, align: int) -> Placement:
    parts = array(value, place, 3)
    if len(parts) < 3:
        raise FieldError(f"{place}: not an offset, a dtype and a shape")
    offset = integer(*parts[0], 0, MAX_BYTES)
    if offset % align:
        raise FieldError(f"{place}[0]: {offset} is not a multiple of {align}")
    return Placement(offset, *_kind(parts[1], parts[2]))


def _kind(dtype: tuple[Any, str], shape: tuple[Any, str]) -> tuple[str, tuple[int, ...]]:
    """Return a dtype and a shape whose bytes can be counted."""
    value, place = dtype
    if not isinstance(value, str) or value not in DTYPES:
        raise FieldError(f"{place}: not one of {', '.join(DTYPES)}")
    extents = tuple(integer(*each, 0, MAX_BYTES) for each in array(*shape, MAX_RANK))
    if math.prod(max(extent, 1) for extent in extents) > MAX_BYTES // 8:
        raise FieldError(f"{shape[1]}: more than {MAX_BYTES // 8} elements")
    return value, extents


def _call(value: Any, place: str) -> Call:
    parts = array(value, place, MAX_TENSORS)
    if not parts:
        raise FieldError(f"{place}: not a kernel's name and numbers of tensors")
    return string(*parts[0]), tuple(_number(*each) for each in parts[1:])


def _number(value: Any, place: str) -> int:
    return integer(value, place, 0, 3 * MAX_TENSORS)


def _row_count(value: Any, place: str) -> int | None:
    return None if value is None else integer(value, place, 0, 2 * MAX_SPECS)


def _check_ends(name: str, placements: Sequence[Placement], size: int) -> None:
    for index, placement in enumerate(placements):
        if placement.end > size:
            raise FieldError(f"{name}[{index}]: ends at byte {placement.end} of {size}")


def _check_row_counts(header: ArtifactHeader) -> None:
    counts = [count for count in header.row_counts if count is not None]
    if header.row_counts and len(header.row_counts) != len(header.outputs):
        raise FieldError(
            f"row_counts: {len(header.row_counts)} of them for {len(header.outputs)} outputs"
        )
    if counts and min(counts) < len(header.outputs):
        raise FieldError(f"row_counts: position {min(counts)} is an output's")
    # After the outputs come only counts, each of one output or more.
    if counts and max(counts) >= len(header.outputs) + len(set(counts)):
        raise FieldError(f"row_counts: main returns nothing at position {max(counts)}")
    for index, (spec, counted) in enumerate(zip(header.outputs, header.counts, strict=True)):
        if spec.bounded != (counted is not None):
            raise FieldError(f"row_counts: outputs[{index}] is bounded or counted, and not both")
