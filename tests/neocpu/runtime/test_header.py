"""Headers with a right digest that say what cannot be: refused by name, whatever it is."""

import json
import tracemalloc
from typing import Any

import pytest
from forgery import forge_header

from neocpu.foundation.errors import ArtifactError, TargetError
from neocpu.runtime.aligned_memory import huge_pages
from neocpu.runtime.artifact import check_host, open_artifact, read_header
from neocpu.runtime.artifact_file.header import ArtifactHeader
from neocpu.runtime.artifact_file.strict_json import FieldError, parse

TENSOR = {"name": "x", "dtype": "float32", "shape": [1, 3, 8, 8]}


def changed(fields: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a header with one field set, as in ``inputs.0.shape``."""
    copy = json.loads(json.dumps(fields))
    *way, last = path.split(".")
    inner = copy
    for step in way:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    inner[int(last) if isinstance(inner, list) else last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "blamed"),
    [
        ("name", 3, "name: 3 is not a string"),
        ("versions", [], "versions: [] is not an object"),
        ("versions.apache-tvm", None, "versions.apache-tvm: null is not a string"),
        ("machine", "riscv64", "machine: not one of x86_64, aarch64"),
        ("machine", [], "machine"),
        ("isa_features", "avx2", 'isa_features: "avx2" is not an array'),
        ("isa_features", [1], "isa_features[0]"),
        ("threads", 0, "threads: 0 is not a whole number from 1 to 1024"),
        ("threads", True, "threads: true is not"),
        ("threads", 2.0, "threads: 2.0 is not"),
        ("inputs", {}, "inputs: {} is not an array"),
        ("inputs", [TENSOR, TENSOR], "inputs[1].name: there is another"),
        ("outputs", [], "outputs: there are none"),
        ("outputs", [TENSOR, TENSOR], "outputs[1].name: there is another"),
        ("inputs.0", "x", 'inputs[0]: "x" is not an object'),
        ("inputs.0.name", None, "inputs[0].name: null"),
        ("inputs.0.name", "a\0b", "inputs[0].name: there is a zero in the string"),
        ("inputs.0.dtype", "float33", "inputs[0].dtype: not one of bool"),
        ("inputs.0.dtype", "O", "inputs[0].dtype"),
        ("inputs.0.dtype", ["f4"], "inputs[0].dtype"),
        ("inputs.0.shape", [1, -3], "inputs[0].shape[1]: -3 is not a whole number"),
        ("inputs.0.shape", [1 << 70], "inputs[0].shape[0]"),
        ("inputs.0.shape", [1 << 30, 1 << 30], "inputs[0].shape: more than"),
        ("inputs.0.shape", [0, 1 << 39, 1 << 39], "inputs[0].shape: more than"),
        ("inputs.0.shape", [1] * 33, "inputs[0].shape: "),
        ("inputs.0.bounded", "yes", "inputs[0].bounded"),
        ("row_counts", [1, 1], "row_counts: 2 of them for 1 outputs"),
        ("row_counts", [-1], "row_counts[0]: -1"),
        ("row_counts", [2], "row_counts: main returns nothing at position 2"),
        ("row_counts", [0], "row_counts: position 0 is an output's"),
        ("row_counts", [1], "row_counts: outputs[0] is bounded or counted, and not both"),
        ("outputs.0.bounded", True, "row_counts: outputs[0] is bounded or counted, and not both"),
        ("weights.0", [0, "float32"], "weights[0]: not an offset"),
        ("weights.0.0", -128, "weights[0][0]: -128"),
        ("weights.0.0", 64, "weights[0][0]: 64 is not a multiple of 128"),
        ("weights.1.0", 1 << 39, "weights[1]: ends at byte"),
        ("weights.0.0", 128, "weights[0][0]: 128 is not 0"),
        ("weights.1.0", 0, "weights[1][0]: 0 is not 8448"),
        ("weights", [], "weights: they take 0 bytes of 8704"),
        ("weights.0.2", [1 << 20], "weights[0]: ends at byte 4194304 of"),
        ("activations", [[32, "float32", [4]]], "activations[0][0]: 32 is not a multiple of 64"),
        ("activations", [[1152, "float32", [5]]], "activations[0]: ends at byte 1172 of 1168"),
        ("arena_bytes", 1 << 41, "arena_bytes"),
        ("arena_bytes", -1, "arena_bytes"),
        ("plan", [], "plan: not an object"),
        ("format", "3", 'format: "3"'),
    ],
)
def test_absurd_fields_are_named(linear, tmp_path, path, value, blamed):
    forged = forge_header(
        linear.path, tmp_path / "a.so", changed(linear.header.to_json(), path, value)
    )
    with pytest.raises(ArtifactError) as caught:
        read_header(forged)
    assert f"{forged} has a malformed header: {blamed}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ArtifactHeader.__dataclass_fields__)
def test_missing_fields_are_named(linear, tmp_path, name):
    fields = linear.header.to_json()
    name = "versions" if name.endswith("_version") else name
    del fields[name]
    forged = forge_header(linear.path, tmp_path / "a.so", fields)
    with pytest.raises(ArtifactError, match=f"malformed header: {name} is missing"):
        read_header(forged)


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        (b"", "it is not JSON"),
        (b"null", "all of it: null is not an object"),
        (b"[]", "all of it"),
        (b"{", "it is not JSON"),
        (b'{"format":3', "it is not JSON"),
        (b"\xff\xfe{}", "it is not JSON"),
        ('{"format":3}'.encode("utf-16"), "it is not JSON"),
        (b'{"format":NaN}', "it holds NaN"),
        (b'{"format":-Infinity}', "it holds -Infinity"),
        (b'{"plan":{"cost":1e999}}', "it holds 1e999"),
        (b'{"format":' + b"9" * 5000 + b"}", "it holds 99999"),
        (b'{"format":3,"format":3}', 'an object names "format" twice'),
        (b'{"plan":"\\ud800"}', "it is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"plan":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused(linear, tmp_path, text, blamed):
    forged = forge_header(linear.path, tmp_path / "a.so", text)
    with pytest.raises(ArtifactError, match="has a malformed header") as caught:
        read_header(forged)
    assert blamed in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whole_characters_beyond_the_first_plane_are_read():
    assert parse(json.dumps({"name": "net \U0001f600"}).encode()) == {"name": "net \U0001f600"}
    with pytest.raises(FieldError):
        parse(b'"\\uDC00"')


def test_header_that_is_too_long_is_not_parsed(linear, tmp_path):
    forged = forge_header(linear.path, tmp_path / "a.so", b"[" + b"0," * (9 << 20) + b"0]")
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match="out of place"):
            read_header(forged)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_more_memory_than_the_host_has_is_refused_before_loading(linear, tmp_path):
    fields = changed(linear.header.to_json(), "arena_bytes", 1 << 40)
    forged = forge_header(linear.path, tmp_path / "a.so", fields)
    with (
        open_artifact(forged) as artifact,
        pytest.raises(TargetError, match=r"its tensors take 1099\.5 GB and this host has"),
    ):
        check_host(artifact.header, artifact.path)


def test_the_forger_forges_well(linear, tmp_path):
    longer = {**linear.header.to_json(), "plan": {"more": "x" * 10_000}}
    forged = forge_header(linear.path, tmp_path / "a.so", longer)
    assert read_header(forged, verify_weights=True).plan == longer["plan"]


def test_memory_that_the_system_does_not_give():
    with pytest.raises(TargetError, match="cannot allocate 1152921504"):
        huge_pages(1 << 60)
