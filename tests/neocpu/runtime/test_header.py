"""Headers with a right digest and impossible values, which are refused by name."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from forgery import checked_header, forge_header
from header_mutants import MALFORMED, RIGHT, edited

from neocpu.foundation.errors import ArtifactError, TargetError
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import Prologue
from neocpu.runtime.module import load

MAY_BE_MISSING = set(
    "repeats slices launches streams others row_function rows_mixed numbered prologue sized".split()
)
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
    ("path", "value"),
    [
        ("name", 3),
        ("versions", []),
        ("versions.apache-tvm", None),
        ("machine", []),
        ("isa_features", "avx2"),
        ("isa_features", [1]),
        ("isa_features", None),
        ("machine", 62),
        ("threads", "2"),
        ("weights.0", []),
        ("weights.0.0", 1.5),
        ("weights.0.0", 1 << 63),
        ("arena_bytes", 0.5),
        ("inputs.0.bounded", 1),
        ("inputs.0.shape", [[4]]),
        ("inputs.0.shape", None),
        ("row_counts", "x"),
        ("threads", 0),
        ("threads", True),
        ("threads", 2.0),
        ("streams", 0),
        ("streams", None),
        ("streams", 1025),
        ("inputs", {}),
        ("inputs", [TENSOR, TENSOR]),
        ("outputs", []),
        ("outputs", [TENSOR, TENSOR]),
        ("inputs.0", "x"),
        ("inputs.0.name", None),
        ("inputs.0.name", "a\0b"),
        ("inputs.0.dtype", "float33"),
        ("inputs.0.dtype", "O"),
        ("inputs.0.dtype", ["f4"]),
        ("inputs.0.shape", [1, -3]),
        ("inputs.0.shape", [1 << 70]),
        ("inputs.0.shape", [1 << 30, 1 << 30]),
        ("inputs.0.shape", [0, 1 << 39, 1 << 39]),
        ("inputs.0.shape", [1] * 33),
        ("inputs.0.bounded", "yes"),
        ("row_counts", [1, 1]),
        ("row_counts", [-1]),
        ("row_counts", [2]),
        ("row_counts", [0]),
        ("row_counts", [1]),
        ("outputs.0.bounded", True),
        ("weights.0", [0, "float32"]),
        ("weights.0.0", -128),
        ("weights.0.0", 64),
        ("weights.1.0", 1 << 39),
        ("weights.0.0", 128),
        ("weights.1.0", 0),
        ("weights", []),
        ("weights.0.2", [1 << 20]),
        ("activations", [[32, "float32", [4]]]),
        ("activations", [[1152, "float32", [5]]]),
        ("arena_bytes", 1 << 41),
        ("arena_bytes", -1),
        ("plan", []),
        ("format", "3"),
    ],
)
def test_absurd_fields_are_named(linear, tmp_path, path, value):
    fields = changed(linear.header.to_json(), path, value)
    forged = forge_header(linear.path, tmp_path / "a.so", fields)
    with pytest.raises(ArtifactError) as caught:
        read_header(forged)
    blamed = "row_counts" if path.endswith("bounded") and value is True else path.split(".")[0]
    assert f"{forged} has a malformed header ({blamed})" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "name", sorted(ArtifactHeader.__dataclass_fields__.keys() - MAY_BE_MISSING)
)
def test_missing_fields_are_named(linear, tmp_path, name):
    fields = linear.header.to_json()
    name = "versions" if name.endswith("_version") else name.removeprefix("stored_")
    del fields[name]
    forged = forge_header(linear.path, tmp_path / "a.so", fields)
    with pytest.raises(ArtifactError, match=rf"malformed header \({name}\)"):
        read_header(forged)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"format":3',
        b"\xff\xfe{}",
        '{"format":3}'.encode("utf-16"),
        b'{"format":NaN}',
        b'{"format":-Infinity}',
        b'{"plan":{"cost":1e999}}',
        b'{"format":' + b"9" * 5000 + b"}",
        b'{"format":3,"format":3}',
        b'{"plan":"\\ud800"}',
        b"[" * 200_000,
        b'{"plan":' * 100_000,
    ],
)
def test_what_is_not_json_is_refused(linear, tmp_path, text):
    forged = forge_header(linear.path, tmp_path / "a.so", text)
    with pytest.raises(ArtifactError, match="has a malformed header") as caught:
        read_header(forged)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MALFORMED)
def test_headers_that_are_malformed_in_other_ways(linear, tmp_path, name):
    text = edited(linear.header.encode(), MALFORMED[name])
    with pytest.raises(ArtifactError, match="has a malformed header"):
        read_header(forge_header(linear.path, tmp_path / "a.so", text))


@pytest.mark.parametrize("name", RIGHT)
def test_other_spellings_are_read(linear, tmp_path, name):
    path = forge_header(linear.path, tmp_path / "a.so", edited(linear.header.encode(), RIGHT[name]))
    assert replace(read_header(path), stored_plan={}) == replace(linear.header, stored_plan={})
    load(path, 1).close()


def test_header_that_is_too_long_is_not_parsed(linear, tmp_path):
    forged = forge_header(linear.path, tmp_path / "a.so", b"[" + b"0," * (9 << 20) + b"0]")
    with pytest.raises(ArtifactError, match="out of order"):
        read_header(forged)


def test_more_memory_than_the_host_has_is_refused_before_loading(linear, tmp_path):
    fields = changed(linear.header.to_json(), "arena_bytes", 1 << 40)
    forged = forge_header(linear.path, tmp_path / "a.so", fields)
    said = r"its tensors take 1099\.5 GB and this host has"
    assert re.match(said, ArtifactFile(forged).variants[0].obstacle)
    with pytest.raises(TargetError, match=said):
        load(forged)


def test_the_forger_forges_well(linear, tmp_path):
    longer = {**linear.header.to_json(), "plan": {"more": "x" * 10_000}}
    forged = forge_header(linear.path, tmp_path / "a.so", longer)
    assert checked_header(forged).stored_plan == longer["plan"]


@pytest.mark.parametrize(("told", "known"), [(0.5, 0.5), (None, None), ("soon", None), ([], None)])
def test_how_long_packing_took_is_a_number_or_unknown(told: Any, known: float | None) -> None:
    data = {
        **Prologue(offset=128, made_bytes=64, weights=(), made=(), calls=()).to_json(),
        "seconds": told,
    }
    assert Prologue.from_json(data).seconds == known
