"""Files for several CPUs: what is loaded of them where, and every way their index can be wrong."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from forgery import forge_header

from neocpu.building.fat_file import combine, combine_each
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, TargetError, UsageError
from neocpu.runtime import artifact as artifact_module
from neocpu.runtime.artifact import open_artifact, open_variants, read_header, read_variants
from neocpu.runtime.artifact_file.fat import BLOCK, MAGIC, Entry, choose, encode_index, read_index
from neocpu.runtime.artifact_file.strict_json import FieldError
from neocpu.runtime.module import load

X86, ARM = "x86_64", "aarch64"
AVX2 = ("avx", "avx2", "fma")
AVX512 = (*AVX2, "avx512f", "avx512vl")
HOST = os.uname().machine


def entry(name, features=(), machine=X86, cpu="some"):
    return Entry(name, BLOCK, 1, f"llvm -mtriple=t -mcpu={cpu} -mattr=+x", machine, features)


def variant(toy, path, *, factor=1.0, **fields):
    """Write the toy's artifact with other header fields, and weights that tell it from others."""
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


def refused(path, kind=ArtifactError, by=load):
    with pytest.raises(kind) as caught:
        by(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestChoice:
    ABLE = frozenset(AVX512)

    def test_widest_vectors(self):
        entries = [entry("a", AVX2), entry("b", AVX512), entry("c", AVX2)]
        assert choose(entries, X86, self.ABLE).name == "b"

    def test_wide_vectors_count_more_than_many_instruction_sets(self):
        many = entry("a", (*AVX2, *(f"x{i}" for i in range(9))))
        able = self.ABLE.union(many.isa_features)
        assert choose([many, entry("b", AVX512)], X86, able).name == "b"

    def test_most_instruction_sets(self):
        entries = [entry("a", AVX2), entry("b", (*AVX2, "avxvnni"))]
        assert choose(entries, X86, frozenset((*AVX2, "avxvnni"))).name == "b"

    def test_first_of_equals(self):
        assert choose([entry("a", AVX2), entry("b", AVX2)], X86, self.ABLE).name == "a"

    def test_the_very_cpu_comes_before_all(self):
        entries = [entry("a", AVX512), entry("b", AVX2, cpu="znver9")]
        assert choose(entries, X86, self.ABLE, "znver9").name == "b"
        assert choose(entries, X86, self.ABLE, "znver").name == "a"

    def test_only_what_the_host_can_run(self):
        entries = [entry("a", AVX512), entry("b", AVX2), entry("c", ("neon",), ARM)]
        assert choose(entries, X86, frozenset(AVX2)).name == "b"
        assert choose(entries, ARM, frozenset(("neon", "sve"))).name == "c"
        assert choose(entries, X86, frozenset(("sse4.2",)), "some") is None
        assert choose(entries, ARM, frozenset()) is None


def test_the_variant_for_this_host_is_loaded_and_computes(fat, linear):
    (x,) = linear.inputs()
    with load(fat) as module:
        np.testing.assert_allclose(module(x), 2 * linear.reference(x)[0], rtol=1e-4, atol=1e-5)


def test_two_loads_share_the_code_and_variants_do_not(fat, linear, tmp_path):
    with open_artifact(fat) as one, open_artifact(fat) as two, open_artifact(fat, "far") as far:
        assert one.identity == two.identity
        assert one.identity != far.identity
        paths = {a.library_path() for a in (one, two, far) for _ in range(2)}
        assert len(paths) == 6
    with load(fat) as first, load(fat) as second:
        (x,) = linear.inputs()
        np.testing.assert_array_equal(first(x), second(x))


def test_weights_are_used_where_they_lie(fat):
    with open_artifact(fat) as artifact:
        (array, _) = artifact.weight_arrays()
        with open("/proc/self/maps") as file:
            lines = [line.split() for line in file if str(fat) in line]
        bounds = [[int(part, 16) for part in line[0].split("-")] for line in lines]
        assert any(low <= array.ctypes.data < high for low, high in bounds)
        assert not array.flags.writeable


def test_a_variant_may_be_asked_for(fat):
    assert read_header(fat).isa_features == ()
    assert read_header(fat, "far").isa_features == ("avx4096",)
    with pytest.raises(UsageError, match="no variant 'fat', only far, near, alien; did you mean"):
        read_header(fat, "fat")


def test_a_plain_file_has_no_variants(linear):
    with pytest.raises(UsageError, match="has no variants"):
        read_header(linear.path, "avx2")
    (only,) = read_variants(linear.path)
    assert (only.name, only.offset, only.size) == ("", 0, linear.path.stat().st_size)
    assert only.header == linear.header


def test_all_variants_are_read(fat):
    variants = read_variants(fat)
    assert [each.name for each in variants] == ["far", "near", "alien"]
    assert all(each.offset % BLOCK == 0 for each in variants)
    assert variants[-1].offset + variants[-1].size == fat.stat().st_size
    assert [each.header for each in variants] == [
        read_header(fat, each.name, verify_weights=True) for each in variants
    ]


def test_no_variant_for_this_host(linear, tmp_path, monkeypatch):
    other = ARM if HOST == X86 else X86
    sources = {
        name: variant(linear, tmp_path / f"{name}.so", isa_features=(name,))
        for name in ("avx99", "avx77")
    }
    path = tmp_path / "fat.so"
    combine(sources, path)
    message = refused(path, TargetError)
    assert f"no variant that this host ({HOST}) can run: avx99 (lacks avx99); avx77" in message
    monkeypatch.setattr(artifact_module.os, "uname", lambda: type("U", (), {"machine": other}))
    with pytest.raises(TargetError, match=rf"avx99 \(for {HOST}\); avx77 \(for {HOST}\)"):
        open_artifact(path)
    assert read_header(path).isa_features == ("avx99",)  # the first, to look at


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
    """While the next one is made; but a failure of that leaves nothing."""

    def parts(*names):
        for name in names:
            if name == "bad":
                raise UsageError("no such part")
            path = variant(linear, tmp_path / f"{name}.so", isa_features=(name,))
            yield name, path
            path.unlink()

    combine_each(parts("a", "b"), tmp_path / "fat.so")
    assert [each.name for each in read_variants(tmp_path / "fat.so")] == ["a", "b"]
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
        (b'"offset":65536', b'"offset":65537', "variants[0].offset"),
        (b'"offset":65536', b'"offset":-65536', "variants[0].offset: -65536"),
        (b'"offset":65536', b'"offset":1e5', "variants[0].offset: 100000.0"),
        (b'"offset":131072', b'"offset":65536', "variants[1].offset"),
        (b'"size":100', b'"size":0', "variants[0].size: 0"),
        (b'"size":100', b'"size":99999999999999999999999', "variants[0].size"),
        (b'"name":"b"', b'"name":"a"', "variants[1].name: there is another"),
        (b'"name":"b"', b'"name":""', "variants[1].name: not 1 to 63"),
        (b'"name":"b"', b'"nome":"b"', "variants[1].name is missing"),
        (b'"variants"', b'"variant"', "variants is missing"),
        (b'["x"]', b'"x"', "variants[0].isa_features"),
        (MAGIC, b"NEOCPU-FAT 2\n", "fat file of version '2', not 1"),
    ],
)
def test_absurd_indices_are_named(old, new, blamed):
    index = encode_index(
        [Entry("a", BLOCK, 100, "t", X86, ("x",)), Entry("b", 2 * BLOCK, 50, "t", X86, ())]
    )
    assert index.count(old) == 1
    text = resigned(index.replace(old, new).split(b"\n"))
    with pytest.raises(FieldError) as caught:
        read_index(text, 2 * BLOCK + 50)
    assert blamed in str(caught.value)
    assert len(read_index(index, 2 * BLOCK + 50)) == 2


@pytest.mark.parametrize("count", [0, 33])
def test_number_of_variants(count):
    document = {"variants": [e.to_json() for e in [entry("a")] * count]}
    text = resigned([MAGIC.rstrip(), json.dumps(document).encode()])
    with pytest.raises(FieldError, match="variants: "):
        read_index(text, BLOCK + 1)


def test_truncated_or_lengthened_anywhere(fat, tmp_path):
    data = fat.read_bytes()
    path = tmp_path / "b.so"
    for length in (0, 5, 11, 13, 100, 700, BLOCK - 1, BLOCK, BLOCK + 9, len(data) - 1):
        path.write_bytes(data[:length])
        refused(path)
        refused(path, by=open_variants)
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
    far, near, _ = read_variants(fat)
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
    assert f"{path} (far)" in refused(path, by=open_variants)


def test_index_that_promises_less_than_the_code_needs(linear, tmp_path):
    """The gate looks at the index: one that lies about instruction sets is refused."""
    source = variant(linear, tmp_path / "a.so", isa_features=("avx99",))
    size = source.stat().st_size
    lying = Entry("a", BLOCK, size, linear.header.target, linear.header.machine, ())
    path = tmp_path / "fat.so"
    path.write_bytes(encode_index([lying]).ljust(BLOCK, b"\0") + source.read_bytes())
    assert "index and header disagree on the target" in refused(path)


def test_code_in_memory_is_all_the_loader_needs(fat):
    with open_artifact(fat) as artifact, open(artifact.library_path(), "rb") as file:
        assert len(file.read()) == artifact.code_bytes < artifact.size
    assert not any("neocpu-code" in os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors())


def _descriptors():
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]
