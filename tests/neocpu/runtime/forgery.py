"""Artifacts with right digests and wrong content."""

import hashlib
import itertools
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neocpu.building.elf import read_elf
from neocpu.building.pipeline import Built
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.artifact import ArtifactFile
from neocpu.runtime.header import (
    DIGEST_SECTION,
    HEADER_SECTION,
    MAX_RANK,
    MAX_THREADS,
    WEIGHTS_SECTION,
    ArtifactHeader,
)
from neocpu.runtime.header_parts import Placement
from neocpu.runtime.module import load

_SECTION = struct.Struct("<IIQQQQIIQQ")


def forge(source: Path, path: Path, edit: Callable[[bytearray], None]) -> Path:
    """Write a copy of an artifact with edited bytes and a matching digest."""
    data = bytearray(source.read_bytes())
    edit(data)
    path.write_bytes(sign(data))
    return path


def checked_header(path: Path) -> ArtifactHeader:
    """Return a file's header, its weights checked too."""
    file = ArtifactFile(path)
    file.check_weights()
    return (file.loadable or file.variants[0]).header


def refused(path: Any, kind: type[Exception] = ArtifactError, *, by: Callable = load) -> str:
    """Return the message, of one line that names the file, with which a file is refused."""
    with pytest.raises(kind) as caught:
        by(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without_calls(toy: Any, weights: int) -> Built:
    """Return a toy's code without calls, which therefore takes any number of weights."""
    (spec,) = toy.header.outputs
    planned = toy.built.planned
    program = replace(planned.program, calls=(), results=(len(toy.header.inputs) + weights,))
    activations = (Placement(0, spec.dtype, spec.shape),)
    arena = Placement(0, spec.dtype, spec.shape).end
    changes = {"program": program, "activations": activations, "arena_bytes": arena}
    return replace(toy.built, planned=replace(planned, **changes))


def sign(data: bytearray) -> bytearray:
    """Update an artifact's digest of all but the weights."""
    elf = read_elf(memoryview(data))
    weights, digest = elf.find(WEIGHTS_SECTION), elf.find(DIGEST_SECTION)
    body = data[: weights.offset] + data[weights.offset + weights.size : digest.offset]
    data[digest.offset : digest.offset + 32] = hashlib.sha256(body).digest()
    return data


def forge_header(source: Path, path: Path, header: Any) -> Path:
    """Write a copy of an artifact with another header, given as bytes or as JSON data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(with_header(source.read_bytes(), text))
    return path


def with_header(data: bytes, text: bytes) -> bytearray:
    """Return an artifact with another header of any length; sections after it move."""
    section = read_elf(memoryview(data)).find(HEADER_SECTION)
    end = section.offset + section.size
    text = text + b"\n" * (-len(text) % 8)
    moved = len(text) - section.size
    changed = bytearray(data[: section.offset] + text + data[end:])
    table = struct.unpack_from("<Q", changed, 40)[0] + moved
    struct.pack_into("<Q", changed, 40, table)
    count = struct.unpack_from("<H", changed, 60)[0]
    for place in range(table, table + count * _SECTION.size, _SECTION.size):
        fields = list(_SECTION.unpack_from(changed, place))
        if fields[4:6] == [section.offset, section.size]:
            fields[5] = len(text)
        elif fields[4] >= end:
            fields[4] += moved
        _SECTION.pack_into(changed, place, *fields)
    return sign(changed)


def check_places(header: ArtifactHeader, weight_bytes: int) -> None:
    """Check that everything in a header refers to existing things, as a reader must."""
    weights, arena = header.weights, header.activations
    assert all(one.offset % 128 == 0 and one.end <= weight_bytes for one in weights)
    assert all(a.end <= b.offset for a, b in itertools.pairwise(weights))
    assert all(one.offset % 64 == 0 and one.end <= header.arena_bytes for one in arena)
    sizes = [Placement(0, spec.dtype, spec.shape).end for spec in header.inputs]
    sizes += [one.end - one.offset for one in (*weights, *arena)]
    extents = header.sized.extents if header.sized is not None else ()
    for _, tensors in header.calls:
        assert all(0 <= tensor < len(sizes) + len(extents) for tensor in tensors)
    counts = {count for count in header.row_counts if count is not None}
    results = (*header.outputs, *(TensorSpec("rows", "int64", (1,)) for _ in counts))
    assert len(header.returns) == len(results)
    for number, spec in zip(header.returns, results, strict=True):
        assert sizes[number] == Placement(0, spec.dtype, spec.shape).end
    assert header.outputs
    assert 1 <= header.threads <= MAX_THREADS
    for spec in (*header.inputs, *header.outputs):
        assert len(spec.shape) <= MAX_RANK
        assert spec.shape or not spec.bounded
