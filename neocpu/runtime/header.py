"""The JSON header of an artifact: what it computes, for which machine, with which libraries."""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.tensor_spec import TensorSpec, group_rows

Buffer: TypeAlias = memoryview | mmap.mmap

FORMAT: Final = 3
"""Version of layout and header: raised when an older runtime could not read a newer file."""

HEADER_SECTION: Final = ".neocpu"
WEIGHTS_SECTION: Final = ".neocpu.weights"
DIGEST_SECTION: Final = ".neocpu.sha256"

WEIGHT_ALIGN: Final = 128
"""Bytes each weight starts on a multiple of: two cache lines, the adjacent-line prefetch unit."""


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

    @classmethod
    def from_json(cls, data: list[Any]) -> Placement:
        """Inverse of `to_json`."""
        offset, dtype, shape = data
        return cls(offset, dtype, tuple(shape))

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """Return the array in ``buffer``, which it keeps alive."""
        return np.ndarray(self.shape, self.dtype, buffer, self.offset)


@dataclass(frozen=True, slots=True)
class ArtifactHeader:
    """Everything known of an artifact without loading it.

    Attributes
    ----------
    name : str
        The model's name.
    neocpu_version, tvm_version, ffi_version : str
        Versions of neocpu, apache-tvm and apache-tvm-ffi that compiled it. The last two must be
        the installed ones; neocpu's is informative, because ``format`` is its contract.
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
        element); None where all rows count. Counts come behind the outputs.
    weights : tuple of Placement
        In the weights section: the parameters of ``main`` behind the inputs, in order.
    activations : tuple of Placement
        In the arena: the parameters of ``main`` behind the weights, in order. They may overlap.
    arena_bytes : int
        Size of the memory that a module allocates for them.
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
    plan: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def row_groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the outputs whose rows are counted together."""
        return group_rows(self.row_counts)

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
            "plan": self.plan,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ArtifactHeader:
        """Inverse of `to_json`.

        Raises
        ------
        KeyError, TypeError, ValueError
            If a field is missing or has the wrong type.
        """
        versions = data["versions"]
        return cls(
            name=data["name"],
            neocpu_version=versions["neocpu"],
            tvm_version=versions["apache-tvm"],
            ffi_version=versions["apache-tvm-ffi"],
            target=data["target"],
            machine=data["machine"],
            isa_features=tuple(data["isa_features"]),
            threads=data["threads"],
            inputs=tuple(TensorSpec.from_json(spec) for spec in data["inputs"]),
            outputs=tuple(TensorSpec.from_json(spec) for spec in data["outputs"]),
            row_counts=tuple(data["row_counts"]),
            weights=tuple(map(Placement.from_json, data["weights"])),
            activations=tuple(map(Placement.from_json, data["activations"])),
            arena_bytes=data["arena_bytes"],
            plan=data["plan"],
            format=data["format"],
        )

    def encode(self) -> bytes:
        """Return the bytes of the header section: one line of JSON and a newline."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode() + b"\n"
