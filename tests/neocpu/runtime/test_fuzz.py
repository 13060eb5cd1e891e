"""Random files: refused in one line, or read and then usable."""

import hashlib
import json
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forgery import check_places, sign, with_header
from header_mutants import mutant_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neocpu.building.fat_file import BLOCK, combine
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.artifact import ArtifactFile
from neocpu.runtime.header_parts import Placement

fuzz = settings(
    derandomize=True,
    deadline=5000,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def whole(linear: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An artifact whose header uses every field."""
    header = replace(
        linear.header,
        outputs=(TensorSpec("y", "float32", (4, 33), bounded=True),),
        row_counts=(1,),
        activations=(Placement(0, "float32", (4, 64)), Placement(1024, "int64", (1,))),
        arena_bytes=1032,
        isa_features=("sse4.2",),
    )
    path = tmp_path_factory.mktemp("whole") / "a.so"
    write_artifact(linear.built, linear.weights, header, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def fat(linear: Any, two_way: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fat") / "fat.so"
    combine({"a": linear.path, "b": linear.path}, path)
    return path.read_bytes()


def survives(path: Path, data: bytes | bytearray) -> None:
    """Check that a file is refused in one line, or can be read and used."""
    path.write_bytes(data)
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        file = ArtifactFile(path)
    except ArtifactError as error:
        message = str(error)
        assert str(path) in message
        assert "\n" not in message
        assert len(message) < 1000
        message.encode()
    else:
        for variant in file.variants:
            _use(variant)
        del file
    assert len(os.listdir("/proc/self/fd")) == descriptors


def _use(variant: Any) -> None:
    header = variant.header
    header.encode()
    check_places(header, variant.weight_bytes)
    assert len({spec.name for spec in header.inputs}) == len(header.inputs)
    for count in header.row_counts:
        assert count is None or 0 <= count < 2 * len(header.outputs)
    assert variant.obstacle is None or variant.obstacle.isprintable()


def _header_of(data: bytes) -> Any:
    start = data.index(b'{"format"')
    return json.loads(data[start : data.index(b"\n", start)])


def test_headers_of_other_content(whole: bytes, tmp_path: Path) -> None:
    for seed in range(300):
        text = mutant_text(_header_of(whole), seed)
        survives(tmp_path / "a.so", with_header(whole, text))


def test_indices_of_other_content(fat: bytes, tmp_path: Path) -> None:
    magic, line, _, _ = fat.split(b"\n", 3)
    for seed in range(150):
        lines = magic + b"\n" + mutant_text(json.loads(line), seed) + b"\n"
        index = lines + hashlib.sha256(lines).hexdigest().encode() + b"\n"
        survives(tmp_path / "a.so", index.ljust(BLOCK, b"\0") + fat[BLOCK:])


@fuzz
@given(data=st.data())
def test_section_tables_of_other_content(whole: bytes, tmp_path: Path, data: st.DataObject) -> None:
    changed = bytearray(whole)
    table = struct.unpack_from("<Q", changed, 40)[0]
    count = struct.unpack_from("<H", changed, 60)[0]
    interesting = st.sampled_from([0, 1, 64, len(whole), 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            # The last sections are ours; fields of eight bytes: offset, size, alignment.
            entry = table + 64 * data.draw(st.integers(max(count - 5, 0), count - 1))
            place = entry + data.draw(st.sampled_from([0, 4, 16, 24, 32, 48]))
            value = data.draw(st.one_of(interesting, st.integers(0, len(whole))))
            struct.pack_into("<Q", changed, place, value)
        else:
            changed[data.draw(st.integers(0, 63))] = data.draw(st.integers(0, 255))
    # As good a digest as can be had: a table that cannot be read cannot be signed.
    try:
        sign(changed)
    except (AttributeError, LookupError, ValueError, struct.error):
        pass
    survives(tmp_path / "a.so", changed)


@fuzz
@given(
    start=st.sampled_from(
        [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01", b"NEOCPU-FAT", b"NEOCPU-FAT 1\n"]
    ),
    rest=st.binary(max_size=300),
    padding=st.sampled_from([0, 1, 200_000]),
)
def test_random_bytes(tmp_path: Path, start: bytes, rest: bytes, padding: int) -> None:
    survives(tmp_path / "a.so", start + rest + bytes(padding))


@fuzz
@given(data=st.data())
def test_fat_files_of_other_bytes(fat: bytes, tmp_path: Path, data: st.DataObject) -> None:
    changed = bytearray(fat)
    for _ in range(data.draw(st.integers(1, 3))):
        places = st.one_of(st.integers(0, 700), st.integers(0, len(fat) - 1))
        changed[data.draw(places)] = data.draw(st.integers(0, 255))
    length = data.draw(st.one_of(st.just(len(fat)), st.integers(0, len(fat))))
    survives(tmp_path / "a.so", changed[:length])
