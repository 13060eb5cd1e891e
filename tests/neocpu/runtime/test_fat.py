"""Files for several CPUs: the part that each host loads, and all ways to get an index wrong."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from forgery import forge_header, refused

from neocpu.building.fat_file import BLOCK, MAGIC, combine, combine_each, encode_index
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, TargetError, UsageError
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.module import load

X86, ARM = "x86_64", "aarch64"
HOST = os.uname().machine


def variant(toy, path, *, factor=1.0, **fields):
    """Write the toy's artifact with other header fields, and weights that identify it."""
    header = replace(toy.header, **fields)
    weights = [weight * np.float32(factor) for weight in toy.weights]
    write_artifact(toy.built, weights, header, path)
    return path


@pytest.fixture(scope="module")
def fat(linear, tmp_path_factory):
    """Three variants, the middle one for this host: its weights are twice the toy's."""
    tmp_path = tmp_path_factory.mktemp("fat")
    sources = {
        "far": variant(linear, tmp_path / "far.so", isa_features=("avx4096",)),
        "near": variant(linear, tmp_path / "near.so", factor=2),
        "alien": forge_header(
            linear.path,
            tmp_path / "alien.so",
            {**linear.header.to_json(), "isa_features": ["avx8192"]},
        ),
    }
    path = tmp_path / "fat.so"
    combine(sources, path)
    return path


def test_the_variant_for_this_host_is_loaded_and_computes(fat, linear):
    (x,) = linear.inputs()
    with load(fat) as module:
        np.testing.assert_allclose(module(x), 2 * linear.reference(x)[0], rtol=1e-4, atol=1e-5)


def test_a_variant_may_be_asked_for(fat):
    assert read_header(fat).isa_features == ()
    assert read_header(fat, "far").isa_features == ("avx4096",)
    with pytest.raises(UsageError, match="no variant 'fat', only far, near, alien; did you mean"):
        read_header(fat, "fat")


def test_a_plain_file_has_no_variants(linear):
    with pytest.raises(UsageError, match="has no variants"):
        read_header(linear.path, "avx2")
    (only,) = ArtifactFile(linear.path).variants
    assert (only.name, only.offset, only.size) == ("", 0, linear.path.stat().st_size)
    assert only.header == linear.header
    assert only.obstacle is None


def test_all_variants_are_read(fat):
    file = ArtifactFile(fat)
    file.check_weights()
    variants = file.variants
    assert [each.name for each in variants] == ["far", "near", "alien"]
    assert all(each.offset % BLOCK == 0 for each in variants)
    assert variants[-1].offset + variants[-1].size == fat.stat().st_size
    assert [each.header for each in variants] == [read_header(fat, each.name) for each in variants]
    assert [each.obstacle for each in variants] == [
        "this host lacks avx4096",
        None,
        "this host lacks avx8192",
    ]
    assert file.loadable is variants[1]


def entry(name, path, fields):
    """Return an index entry for the first file."""
    default = {"target": "llvm", "machine": HOST, "isa_features": []}
    place = {"name": name, "offset": BLOCK, "size": path.stat().st_size}
    return {**place, **default, **fields}


def test_no_variant_for_this_host(linear, tmp_path):
    other = ARM if HOST == X86 else X86
    sources = {
        name: variant(linear, tmp_path / f"{name}.so", isa_features=(name,))
        for name in ("avx99", "avx77")
    }
    path = tmp_path / "fat.so"
    combine(sources, path)
    message = refused(path, TargetError)
    assert f"no variant that this host ({HOST}) can run: avx99 (lacks avx99); avx77" in message
    assert read_header(path).isa_features == ("avx99",)  # the first, to look at
    assert ArtifactFile(path).loadable is None
    foreign = {"isa_features": [], "machine": other}
    content = forge_header(linear.path, tmp_path / "b.so", {**linear.header.to_json(), **foreign})
    index = encode_index([entry("b", content, foreign)])
    path.write_bytes(index.ljust(BLOCK, b"\0") + content.read_bytes())
    assert f"can run: b (for {other}): compile" in refused(path, TargetError)


def test_combined_file_is_replaced_at_once(linear, tmp_path, monkeypatch):
    path = tmp_path / "fat.so"
    path.write_text("older")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    from neocpu.foundation import files

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(ArtifactError, match="No space left"):
        combine({"a": linear.path}, path)
    assert path.read_text() == "older"
    assert os.listdir(tmp_path) == ["fat.so"]


def test_a_pipe_gets_the_same_bytes(linear, tmp_path):
    """It cannot go back to write the index."""
    sources = {name: tmp_path / f"{name}.so" for name in ("near", "far")}
    for factor, (name, path) in enumerate(sources.items()):
        variant(linear, path, factor=factor, isa_features=(name,))
    combine(sources, tmp_path / "fat.so")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        combine(sources, pipe)
        assert read.result(60) == (tmp_path / "fat.so").read_bytes()


def test_each_part_is_written_when_it_is_there_and_may_go(linear, tmp_path):
    """A part may go once the next one is requested. A failure leaves no file."""

    def parts(*names):
        for name in names:
            if name == "bad":
                raise UsageError("no such part")
            path = variant(linear, tmp_path / f"{name}.so", isa_features=(name,))
            yield name, path
            path.unlink()

    combine_each(parts("a", "b"), tmp_path / "fat.so")
    assert [each.name for each in ArtifactFile(tmp_path / "fat.so").variants] == ["a", "b"]
    before = (tmp_path / "fat.so").read_bytes()
    with pytest.raises(UsageError, match="no such part"):
        combine_each(parts("a", "bad"), tmp_path / "fat.so")
    assert (tmp_path / "fat.so").read_bytes() == before


def test_what_cannot_be_combined(linear, two_way, fat, tmp_path):
    path = tmp_path / "new.so"
    with pytest.raises(UsageError, match="1 to 32 variants, got 0"):
        combine({}, path)
    with pytest.raises(UsageError, match="1 to 63 ASCII characters, not ''"):
        combine({"": linear.path}, path)
    with pytest.raises(UsageError, match="not of one model: their inputs are x: float32"):
        combine({"a": linear.path, "b": two_way.path}, path)
    with pytest.raises(UsageError, match="is a fat file itself"):
        combine({"a": fat}, path)
    with pytest.raises(ArtifactError, match="No such file"):
        combine({"a": tmp_path / "none.so"}, path)
    with pytest.raises(UsageError, match="1 to 63 ASCII"):
        combine({"a" * 64: linear.path}, path)
    assert not path.exists()


def resigned(lines: list[bytes]) -> bytes:
    covered = b"\n".join(lines[:2]) + b"\n"
    return covered + hashlib.sha256(covered).hexdigest().encode() + b"\n"


@pytest.mark.parametrize(
    ("old", "new", "blamed"),
    [
        (b'"offset":65536', b'"offset":65537', "a variant is not behind the one before"),
        (b'"offset":65536', b'"offset":-65536', "a variant;"),
        (b'"offset":65536', b'"offset":1e5', "a variant;"),
        (b'"offset":131072', b'"offset":65536', "a variant is not behind the one before"),
        (b'"size":100', b'"size":0', "a variant is not behind the one before"),
        (b'"size":100', b'"size":99999999999999999999999', "a variant;"),
        (b'"name":"b"', b'"name":"a"', "a variant's name"),
        (b'"name":"b"', b'"name":""', "a variant's name"),
        (b'"name":"b"', b'"nome":"b"', "a variant's name"),
        (b'"variants"', b'"variant"', "variants"),
        (b'["x"]', b'"x"', "a variant;"),
        (MAGIC, b"NEOCPU-FAT 2\n", "of a version that this neocpu does not read"),
    ],
)
def test_absurd_indices_are_named(tmp_path, old, new, blamed):
    common = {"target": "t", "machine": HOST}
    index = encode_index(
        [
            {"name": "a", "offset": BLOCK, "size": 100, **common, "isa_features": ["x"]},
            {"name": "b", "offset": 2 * BLOCK, "size": 50, **common, "isa_features": []},
        ]
    )
    assert index.count(old) == 1
    path = tmp_path / "fat.so"
    path.write_bytes(resigned(index.replace(old, new).split(b"\n")).ljust(2 * BLOCK + 50))
    assert f"has a malformed index: {blamed}" in refused(path).replace("it is a fat file ", "")
    path.write_bytes(index.ljust(2 * BLOCK + 50, b"\0"))
    assert "is not a complete neocpu artifact" in refused(path)


@pytest.mark.parametrize("count", [0, 33])
def test_number_of_variants(tmp_path, count):
    document = {"variants": [{"name": str(i)} for i in range(count)]}
    path = tmp_path / "fat.so"
    path.write_bytes(resigned([MAGIC.rstrip(), json.dumps(document).encode()]))
    assert "malformed index: variants" in refused(path)


def test_truncated_or_lengthened_anywhere(fat, tmp_path):
    data = fat.read_bytes()
    path = tmp_path / "b.so"
    for length in (0, 5, 11, 13, 100, 700, BLOCK - 1, BLOCK, BLOCK + 9, len(data) - 1):
        path.write_bytes(data[:length])
        refused(path)
        refused(path, by=ArtifactFile)
    path.write_bytes(data + b"\0")
    refused(path)


def test_every_flipped_bit_of_the_index_is_noticed(fat, tmp_path):
    data = bytearray(fat.read_bytes())
    path = tmp_path / "b.so"
    size = len(b"\n".join(data.split(b"\n", 3)[:3]))
    for place in range(0, size, 7):
        flipped = data.copy()
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        refused(path)


def test_damage_is_blamed_on_the_variant(fat, tmp_path):
    far, near, _ = ArtifactFile(fat).variants
    path = tmp_path / "b.so"
    for offset in (near.offset + 5000, near.offset + near.size - 70):
        data = bytearray(fat.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)
        assert f"{path} (near)" in refused(path)
    data = bytearray(fat.read_bytes())
    data[far.offset + 5000] ^= 1
    path.write_bytes(data)
    load(path).close()  # it is another variant's
    assert f"{path} (far)" in refused(path, by=ArtifactFile)


def test_index_that_promises_less_than_the_code_needs(linear, tmp_path):
    """The loader reads the index: one with wrong instruction sets is refused."""
    source = variant(linear, tmp_path / "a.so", isa_features=("avx99",))
    lying = entry("a", source, {})
    path = tmp_path / "fat.so"
    path.write_bytes(encode_index([lying]).ljust(BLOCK, b"\0") + source.read_bytes())
    assert "index and header disagree on the target" in refused(path)
