"""Records: JSON form, validation, key."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_records import RECORD, TARGET, record

from neocpu.schedules.scheme import DepthwiseScheme, DirectScheme, NchwScheme, WinogradScheme
from neocpu.schedules.workload import Conv2dWorkload, EpilogueOp
from neocpu.tuning_db.record import (
    Environment,
    LineParser,
    Record,
    Result,
    TargetKey,
    record_key,
)

small = st.integers(1, 512)
seconds = st.floats(1e-9, 1e3)
text = st.text(max_size=20)
schemes = st.one_of(
    st.builds(DirectScheme, small, small, small, st.booleans(), small),
    st.builds(DepthwiseScheme, small, small, st.booleans()),
    st.builds(NchwScheme, small, small),
    st.builds(WinogradScheme, small, small, small, small, small, small, st.booleans()),
)
epilogues = st.lists(
    st.sampled_from([EpilogueOp("bias_add"), EpilogueOp("relu"), EpilogueOp("clip", (0.0, 6.5))]),
    max_size=3,
).map(tuple)
workloads = st.builds(
    Conv2dWorkload,
    small,
    small,
    small,
    small,
    small,
    st.tuples(small, small),
    st.tuples(small, small),
    st.tuples(small, small, small, small),
    st.tuples(small, small),
    small,
    st.sampled_from(["float32", "int8"]),
    epilogues,
)
results = st.one_of(
    st.builds(Result, st.lists(seconds, min_size=1, max_size=5).map(tuple)),
    st.builds(Result, st.lists(seconds, max_size=2).map(tuple), text),
)
records = st.builds(
    Record,
    workloads,
    st.builds(TargetKey, text, st.lists(text, max_size=4).map(tuple), small),
    schemes,
    results,
    st.builds(Environment, text, text, text, small),
    text,
)


@given(records)
def test_record_to_line_to_record(original: Record):
    line = original.to_line()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    parser = LineParser()
    for _ in range(2):  # the second time from the parser's memory
        assert parser.parse(line.encode()) == (original, original.key())


def test_the_documented_form():
    data = json.loads(RECORD.to_line())
    assert list(data) == ["v", "workload", "target", "scheme", "result", "env", "time"]
    assert data["v"] == 1
    assert data["target"] == {"mcpu": "znver5", "features": ["avx2", "fma"], "threads": 2}
    assert data["scheme"]["template"] == "conv2d_direct"
    assert data["result"] == {"seconds": [1e-3, 1.5e-3, 1.25e-3], "error": None}
    assert set(data["env"]) == {"neocpu", "tvm", "ffi", "template_version"}


def test_key_is_the_content_not_the_text():
    reordered = json.dumps(dict(reversed(json.loads(RECORD.to_line()).items()))).encode()
    assert LineParser().parse(reordered) == (RECORD, RECORD.key())
    assert RECORD.key() == record_key(RECORD.workload, TargetKey.of(TARGET, 2))
    assert RECORD.key() != record_key(RECORD.workload, TargetKey.of(TARGET, 1))
    assert RECORD.key() != dataclasses.replace(RECORD.workload, height=57).key()


def change(path: str, value: object) -> bytes:
    data = json.loads(RECORD.to_line())
    *parents, last = path.split(".")
    node = data
    for name in parents:
        node = node[name]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        RECORD.to_line().encode()[:-20],
        RECORD.to_line().encode().strip() * 2,
        change("v", 2),
        change("v", KeyError),
        change("workload.kind", "dense9"),
        change("workload.height", KeyError),
        change("workload.epilogue", [["frobnicate"]]),
        change("target.threads", "2"),
        change("target.features", None),
        change("scheme.template", "conv3d"),
        change("scheme.reg_n", "wide"),
        change("result.seconds", [math.nan]),
        change("result.seconds", [1e-3, -1e-3]),
        change("result.seconds", [math.inf]),
        change("result.seconds", ["1e-3"]),
        change("result.seconds", [0.0]),
        change("result.seconds", []),
        change("result.error", 5),
        change("env", None),
        change("env.template_version", None),
        change("time", KeyError),
    ],
)
def test_what_is_not_a_record(line: bytes, warm: bool):
    parser = LineParser()
    if warm:
        parser.parse(change("time", "earlier"))
        parser.parse(RECORD.to_line().encode())
    with pytest.raises(ValueError, match=r".") as caught:
        parser.parse(line)
    assert "\n" not in str(caught.value)


def test_a_failure_is_never_fast():
    failed = record(1e-9, error="crashed: signal 11")
    assert failed.result.best == math.inf
    assert failed.result.median == math.inf
    assert RECORD.result.best == 1e-3
    assert RECORD.result.median == 1.25e-3
