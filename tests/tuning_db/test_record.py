"""Records: JSON form, validation, key."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Iterator

import pytest
from conv_workloads import conv_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_records import RECORD, TARGET, record

from neocpu.schedules.registry import can_compute, estimate
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    DirectScheme,
    DotScheme,
    JoinScheme,
    NchwScheme,
    PointwiseScheme,
    Scheme,
    StrassenScheme,
    TransformScheme,
    WinogradScheme,
)
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp, Workload
from neocpu.tuning_db.record import (
    Environment,
    Record,
    Result,
    TargetKey,
    UnknownRecordError,
    record_key,
)

TRANSFORM = TransformWorkload(batch=1, channels=64, height=14, width=28, in_block=1, out_block=16)
JOIN = JoinWorkload(operator="concat", batch=1, channels=(64, 32), height=14, width=28, block=16)
BYTES = Numerics(data="uint8", weights="int8", sum="int32", output="float32")

small = st.integers(1, 512)
seconds = st.floats(1e-9, 1e3)
text = st.text(max_size=20)
schemes = st.one_of(
    st.builds(DirectScheme, small, small, reg_n=small, unroll_ker=st.booleans(), reg_oh=small),
    st.builds(DepthwiseScheme, small, small, st.booleans()),
    st.builds(NchwScheme, small, small),
    st.builds(
        WinogradScheme,
        *[small] * 2,
        **dict.fromkeys(("reg_n", "tile", "reg_oc", "strip"), small),
        oc_split=st.booleans(),
    ),
)
epilogues = st.lists(
    st.sampled_from(
        [EpilogueOp("bias_add"), EpilogueOp("relu"), EpilogueOp("clip", (0.5, math.inf))]
    ),
    max_size=3,
).map(tuple)
pairs = st.tuples(small, small)


def convolution(
    batch, group_in, group_out, groups, beyond, windows, numerics, epilogue
) -> Conv2dWorkload:
    """Return a possible convolution: whole groups, and at least one output pixel."""
    kernel, stride, padding, dilation = windows
    size = [d * (k - 1) + more for d, k, more in zip(dilation, kernel, beyond, strict=True)]
    channels = (groups * group_in, groups * group_out)
    return conv_workload(
        batch,
        channels[0],
        *size,
        channels[1],
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        numerics=numerics,
        epilogue=epilogue,
    )


convolutions = st.builds(
    convolution,
    *[small] * 4,
    pairs,
    st.tuples(pairs, pairs, st.tuples(small, small, small, small), pairs),
    st.sampled_from(["float32", "int8"]).map(Numerics.uniform),
    epilogues,
)
transforms = st.builds(
    TransformWorkload,
    **dict.fromkeys(("batch", "channels", "height", "width", "in_block", "out_block"), small),
)
joins = st.one_of(
    st.builds(
        JoinWorkload,
        operator=st.just(joined),
        channels=channels,
        **dict.fromkeys(("batch", "height", "width", "block"), small),
    )
    for joined, channels in (
        ("concat", st.lists(small, min_size=1, max_size=4).map(tuple)),
        ("elementwise", st.tuples(small, st.integers(1, 3)).map(lambda pair: (pair[0],) * pair[1])),
    )
)
results = st.one_of(
    st.builds(Result, st.lists(seconds, min_size=1, max_size=5).map(tuple)),
    st.builds(Result, st.lists(seconds, max_size=2).map(tuple), text),
)
records = st.builds(
    lambda computed, **others: Record(workload=computed[0], scheme=computed[1], **others),
    st.one_of(
        st.tuples(convolutions, schemes),
        st.tuples(transforms, st.just(TransformScheme())),
        st.tuples(joins, st.just(JoinScheme())),
    ),
    target=st.builds(TargetKey, text, st.lists(text, max_size=4).map(tuple), small),
    result=results,
    env=st.builds(Environment, text, text, text, small),
    time=text,
)


@given(records)
def test_record_to_line_to_record(original: Record):
    line = original.to_line()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert Record.from_line(line.encode()) == original


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
    assert Record.from_line(reordered) == RECORD
    key = record_key(RECORD.workload, RECORD.target)
    assert key == record_key(RECORD.workload, TargetKey.of(TARGET, 2))
    assert key != record_key(RECORD.workload, TargetKey.of(TARGET, 1))
    assert key != record_key(dataclasses.replace(RECORD.workload, height=57), RECORD.target)


def change(path: str | tuple[str | int, ...], value: object, original: Record = RECORD) -> bytes:
    """A record's line with another value at a path; KeyError takes the member away."""
    data = json.loads(original.to_line())
    *parents, last = path.split(".") if isinstance(path, str) else path
    node = functools.reduce(operator.getitem, parents, data)
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return json.dumps(data, separators=(",", ":")).encode()


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
        change("v", KeyError),
        change("v", "1"),
        change("workload.height", KeyError),
        change("workload.epilogue", [["frobnicate"]]),
        change("workload.epilogue", [[]]),
        change("workload.epilogue", [["clip", 0.0, "nan"]]),
        change("workload.epilogue", [["clip", 0, 10**400]]),
        change("workload.height", -56),
        change("workload.height", "56"),
        change("workload.height", 56.0),
        change("workload.kernel", [3]),
        change("workload.padding", [1, 1, 1, -1]),
        change("workload.groups", True),
        change("workload.kind", "layout_transform"),
        change("target.threads", "2"),
        change("target.threads", 0),
        change("target.features", None),
        change("scheme", {"template": "join"}),
        change("result.seconds", [math.nan]),
        change("result.seconds", [1e-3, -1e-3]),
        change("result.seconds", [math.inf]),
        change("result.seconds", ["1e-3"]),
        change("result.seconds", [0.0]),
        change("result.seconds", [3601.0]),
        change("result.seconds", [10**400]),
        change("result.seconds", [True]),
        change("result.seconds", []),
        change("result.error", 5),
        change("env", None),
        change("env.template_version", None),
        change("time", KeyError),
    ],
)
def test_lines_that_are_no_records_are_refused(line: bytes):
    with pytest.raises(ValueError, match=r".") as caught:
        Record.from_line(line)
    assert "\n" not in str(caught.value)


ANYTHING = (None, True, 0, -1, 1.5, 10**400, math.nan, math.inf, "", "x", "nan", "float0")
ANYTHING += ([], [1], [[]], [["clip", {}]], {})


def members(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every member of a JSON document, at any depth."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if node else ()
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from members(value, (*path, key))


@pytest.mark.parametrize(
    "scheme",
    [RECORD.scheme, WinogradScheme(8, 8, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=True)],
)
def test_any_value_of_any_member_gives_a_record_or_a_reason(scheme: Scheme):
    original = dataclasses.replace(RECORD, scheme=scheme)
    for path in members(original.to_json()):
        for value in ANYTHING:
            try:
                parsed = Record.from_line(change(path, value, original))
            except ValueError:
                continue
            # What is a record can be used like any other.
            assert Record.from_line(parsed.to_line().encode()) == parsed
            assert len({parsed, parsed}) == 1
            can_compute(parsed.workload, parsed.scheme, TARGET)


def numbers(document: object) -> list[tuple[str | int, ...]]:
    """Return the paths of a document's integers."""
    values = {
        path: functools.reduce(operator.getitem, path, document) for path in members(document)
    }
    return [path for path, value in values.items() if type(value) is int]


absurd = st.one_of(
    st.integers(-2, 40),
    st.integers(0, 400).map(lambda power: 10**power),
    st.integers(0, 1100).map(lambda power: (1 << power) - 1),
    st.floats(),
)
TUNED = [
    (RECORD.workload, DirectScheme(16, 32, reg_n=7, unroll_ker=True)),
    (
        dataclasses.replace(RECORD.workload, epilogue=()),
        WinogradScheme(16, 16, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=True),
    ),
    (
        conv_workload(1, 128, 9, 9, 128, (1, 1)),
        PointwiseScheme(16, 16, reg_n=6, reg_oc=32, ic_block=64, strip=2, oc_split=False),
    ),
    (
        conv_workload(1, 512, 9, 9, 512, (1, 1)),
        StrassenScheme(16, 16, reg_n=6, reg_oc=32, ic_half=64, strip=2, oc_split=False),
    ),
    (conv_workload(1, 64, 9, 9, 64, (3, 3), groups=64), DepthwiseScheme(16, 7, True)),
    (conv_workload(1, 64, 9, 9, 64, (3, 3), groups=4), NchwScheme(8, 16)),
    (
        conv_workload(1, 64, 9, 9, 64, (3, 3), numerics=BYTES),
        DotScheme(16, 16, reg_n=6, unroll_ker=False, reg_oh=2, reg_oc=16),
    ),
    (TRANSFORM, TransformScheme()),
    (JOIN, JoinScheme()),
]
VNNI = dataclasses.replace(TARGET, features=("avx2", "fma", "avx512f", "avx512vnni"))


@pytest.mark.parametrize("tuned", TUNED, ids=lambda tuned: tuned[1].template)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_absurd_numbers_are_refused_or_can_be_computed_with(tuned, data):
    """``"ic_bn": 1e400`` once ended every compilation that read it with an OverflowError."""
    workload, scheme = tuned
    document = json.loads(dataclasses.replace(RECORD, workload=workload, scheme=scheme).to_line())
    for path in data.draw(st.lists(st.sampled_from(numbers(document)), min_size=1, max_size=3)):
        functools.reduce(operator.getitem, path[:-1], document)[path[-1]] = data.draw(absurd)
    try:
        parsed = Record.from_line(json.dumps(document).encode())
    except ValueError:
        return
    assert parsed.target.threads <= 1024
    if can_compute(parsed.workload, parsed.scheme, VNNI):
        assert 0 < estimate(parsed.workload, parsed.scheme, VNNI, 2) < math.inf


def test_a_scheme_of_absurd_numbers_is_no_record():
    for path in ("scheme.ic_bn", "scheme.oc_bn", "scheme.reg_n", "scheme.reg_oh", "target.threads"):
        for value in (10**400, 1 << 60, 1 << 30):
            with pytest.raises(ValueError, match=r"beyond all numbers|bad parameters|threads: "):
                Record.from_line(change(path, value))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (change("v", 2), "record version 2, expected 1"),
        (change("workload.kind", "dense9"), "unknown kind of workload 'dense9'"),
        (change("workload.dtype", "float8"), "unknown element type 'float8'"),
        (change("scheme.template", "conv3d"), "unknown template 'conv3d'"),
        (change("scheme.reg_n", "wide"), "bad parameters for conv2d_direct"),
        (change("scheme.reg_m", 1), "bad parameters for conv2d_direct"),
    ],
)
def test_lines_of_another_version_are_recognised(line: bytes, reason: str):
    for text in (line, json.dumps(json.loads(line)).encode()):
        with pytest.raises(UnknownRecordError, match=reason):
            Record.from_line(text)


def test_members_that_are_there_twice_are_read_as_json_says():
    line = RECORD.to_line().rstrip()
    twice = line[:-1] + ',"workload":' + json.dumps({**RECORD.workload.to_json(), "batch": 5}) + "}"
    assert Record.from_line(twice.encode()).workload.batch == 5


def test_a_failure_is_never_fast():
    failed = record(1e-9, error="crashed: signal 11")
    assert failed.result.best == math.inf
    assert failed.result.median == math.inf
    assert RECORD.result.best == 1e-3
    assert RECORD.result.median == 1.25e-3


@pytest.mark.parametrize(
    ("workload", "changes"),
    [
        (TRANSFORM, {"kind": "join"}),
        (TRANSFORM, {"in_block": 0}),
        (TRANSFORM, {"height": "14"}),
        (TRANSFORM, {"colour": 3}),
        (JOIN, {"operator": "stack"}),
        (JOIN, {"operator": "elementwise"}),
        (JOIN, {"channels": []}),
        (JOIN, {"channels": 64}),
    ],
)
def test_malformed_transform_and_concat_workloads_are_refused(workload: Workload, changes: dict):
    with pytest.raises(ValueError, match=r"."):
        Record.from_line(change("workload", workload.to_json() | changes))


def test_the_documented_form_of_transforms_and_joins():
    assert TRANSFORM.to_json() == {
        "kind": "layout_transform",
        "batch": 1,
        "channels": 64,
        "height": 14,
        "width": 28,
        "in_block": 1,
        "out_block": 16,
        "dtype": "float32",
    }
    written = json.loads(json.dumps(JOIN.to_json()))
    assert written["channels"] == [64, 32]
    assert JOIN.key() == JoinWorkload.from_json(written).key()
    assert str(JOIN) == "concat 1x(64+32)x14x28, NCHW16c"
    assert str(TRANSFORM) == "1x64x14x28, NCHW -> NCHW16c"
    assert JOIN.output_shape == (1, 96, 14, 28)
