"""Layouts, workloads, schemes: parse ∘ print, pack ∘ unpack, JSON round trips."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conv_workloads import conv_workload
from hypothesis import given
from hypothesis import strategies as st

from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, KernelLayout
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    DirectScheme,
    NchwScheme,
    WinogradScheme,
    scheme_from_json,
)
from neocpu.schedules.vocabulary.steps import AFTER, BEFORE
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

small = st.integers(1, 9)


@given(st.integers(1, 128))
def test_data_layout_prints_what_it_parses(block):
    assert DataLayout.parse(str(DataLayout(block))) == DataLayout(block)


@pytest.mark.parametrize("text", ["", "NHWC", "NCHW0c", "NCHW16", "OIHW", "NCHWc", "nchw"])
def test_foreign_layouts_are_refused(text):
    with pytest.raises(ValueError, match="not a data layout"):
        DataLayout.parse(text)
    with pytest.raises(ValueError, match="not a kernel layout"):
        KernelLayout.parse(text)


def test_nchw1c_is_nchw():
    assert DataLayout(1) == NCHW == DataLayout.parse("NCHW1c")
    assert NCHW.shape((1, 3, 5, 7)) == (1, 3, 5, 7)


@given(small, st.integers(1, 40), small, small, st.integers(1, 20))
def test_unpack_inverts_pack(n, c, h, w, block):
    x = np.arange(n * c * h * w, dtype=np.float32).reshape(n, c, h, w)
    layout = DataLayout(block)
    packed = layout.pack(x)
    assert packed.shape == layout.shape(x.shape)
    np.testing.assert_array_equal(layout.unpack(packed, c), x)


def test_pack_places_channels_and_zeroes_padding():
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1, 1)
    packed = DataLayout(4).pack(x)
    np.testing.assert_array_equal(packed.reshape(2, 4), [[1, 2, 3, 4], [5, 0, 0, 0]])


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3), small, small)
def test_kernel_unpack_inverts_pack(o, i, k, ic_bn, oc_bn):
    weights = np.arange(o * i * k * k, dtype=np.float32).reshape(o, i, k, k)
    layout = KernelLayout(ic_bn, oc_bn)
    packed = layout.pack(weights)
    assert packed.shape == layout.shape(weights.shape)
    assert KernelLayout.parse(str(layout)) == layout
    np.testing.assert_array_equal(layout.unpack(packed, o, i), weights)


def test_channel_vectors_broadcast_against_the_layout():
    vector = np.arange(6, dtype=np.float32)
    assert DataLayout(4).pack_channels(vector).shape == (1, 2, 1, 1, 4)
    assert NCHW.pack_channels(vector).shape == (1, 6, 1, 1)


def steps(kinds):
    return st.lists(
        st.builds(EpilogueOp, st.sampled_from(sorted(kinds)), st.just(())), max_size=3
    ).map(tuple)


workloads = st.builds(
    conv_workload,
    *[st.integers(1, 64)] * 5,
    kernel=st.tuples(small, small),
    stride=st.tuples(small, small),
    padding=st.tuples(small, small, small, small),
    epilogue=steps(sorted(AFTER)),
    prologue=steps(sorted(BEFORE)),
).filter(lambda workload: min(workload.out_height, workload.out_width) > 0)


@given(workloads)
def test_workload_survives_json(workload):
    text = json.dumps(workload.to_json())
    again = Conv2dWorkload.from_json(json.loads(text))
    assert again == workload
    assert again.key() == workload.key()


@pytest.mark.parametrize(
    "change",
    [
        {"groups": 3},
        {"out_channels": 6, "groups": 4},
        {"groups": 16},
        {"kernel": [10, 3]},
        {"dilation": [5, 1]},
        {"height": True},
        {"width": 0},
        {"stride": [0, 1]},
        {"padding": [0, 0, 0]},
        {"padding": [0, 0, 0, -1]},
    ],
    ids=str,
)
def test_impossible_convolutions_are_refused(change):
    data = conv_workload(1, 8, 9, 9, 8, (3, 3)).to_json()
    assert Conv2dWorkload.from_json(data)
    with pytest.raises(ValueError, match="impossible convolution"):
        Conv2dWorkload.from_json({**data, **change})


TRANSFORM = TransformWorkload(batch=1, channels=8, height=9, width=9, in_block=1, out_block=8)
JOIN = JoinWorkload(operator="concat", batch=1, channels=(8, 16), height=9, width=9, block=8)


@pytest.mark.parametrize(
    ("workload", "change"),
    [
        (TRANSFORM, {"in_block": 0}),
        (TRANSFORM, {"batch": True}),
        (TRANSFORM, {"dtype": ["float32"]}),
        (JOIN, {"operator": "elementwise"}),
        (JOIN, {"operator": "split"}),
        (JOIN, {"channels": []}),
        (JOIN, {"channels": [8, -8]}),
        (JOIN, {"dtype": {}}),
    ],
    ids=str,
)
def test_impossible_transforms_and_joins_are_refused(workload, change):
    data = workload.to_json()
    assert type(workload).from_json(data) == workload
    with pytest.raises(ValueError, match="not a"):
        type(workload).from_json({**data, **change})


def test_every_field_changes_the_key():
    base = conv_workload(1, 8, 9, 9, 8, (3, 3))
    changes = [
        {"batch": 2}, {"stride": (2, 2)}, {"padding": (1, 1, 1, 1)}, {"dilation": (2, 2)},
        {"groups": 2}, {"numerics": Numerics.uniform("float16")},
        {"epilogue": (EpilogueOp("relu"),)},
        {"epilogue": (EpilogueOp("clip", (0.0, 6.0)),)}, {"prologue": (EpilogueOp("relu"),)},
        {"prologue": (EpilogueOp("gate"),)},
    ]  # fmt: skip
    keys = {replace(base, **change).key() for change in changes} | {base.key()}
    assert len(keys) == len(changes) + 1


def test_an_empty_prologue_is_no_part_of_the_key():
    workload = conv_workload(1, 8, 9, 9, 8, (1, 1))
    assert "prologue" not in workload.to_json()
    assert str(workload) == "1x8x9x9 -> 8, 1x1"
    fused = conv_workload(1, 8, 9, 9, 8, (1, 1), prologue=(EpilogueOp("gate"), EpilogueOp("relu")))
    assert str(fused) == "gate+relu+ 1x8x9x9 -> 8, 1x1"


@pytest.mark.parametrize(
    "change", [{"prologue": [["add"]]}, {"epilogue": [["gate"]]}, {"prologue": [["clip", "nan"]]}]
)
def test_impossible_steps_are_refused(change):
    data = conv_workload(1, 8, 9, 9, 8, (1, 1)).to_json()
    with pytest.raises(ValueError, match="step"):
        Conv2dWorkload.from_json({**data, **change})


def test_key_is_stable():
    assert conv_workload(1, 64, 56, 56, 64, (3, 3)).key() == "9f93b218ac3275d7"


def test_workload_geometry():
    workload = conv_workload(2, 3, 224, 224, 64, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3))
    assert workload.output_shape == (2, 64, 112, 112)
    assert workload.flops == 2 * 2 * 64 * 112 * 112 * 3 * 49
    dilated = conv_workload(1, 4, 10, 11, 4, (3, 2), padding=(1, 0, 2, 1), dilation=(2, 3))
    assert dilated.output_shape == (1, 4, 9, 9)


DIRECT = DirectScheme(16, 32, reg_n=7, unroll_ker=True, reg_oh=2)
PLAIN = NchwScheme(8, 16)


@pytest.mark.parametrize(
    "scheme",
    [
        DIRECT,
        replace(DIRECT, out_bn=64),
        DepthwiseScheme(16, 4, False),
        PLAIN,
        WinogradScheme(16, 32, reg_n=14, tile=4, reg_oc=32, strip=2, oc_split=True),
    ],
    ids=str,
)
def test_scheme_survives_json(scheme):
    assert scheme_from_json(json.loads(json.dumps(scheme.to_json()))) == scheme


def test_a_scheme_without_a_fold_is_written_as_it_was_before_there_were_any():
    expected = {"ic_bn": 16, "oc_bn": 32, "reg_n": 7, "unroll_ker": True, "reg_oh": 2}
    assert DIRECT.to_json() == {"template": "conv2d_direct", **expected}
    assert "out_bn" not in str(DIRECT)
    folded = scheme_from_json({**DIRECT.to_json(), "out_bn": 16})
    assert str(folded).endswith("reg_oh=2 out_bn=16)")
    assert (DIRECT.out_layout, folded.out_layout) == (DataLayout(32), DataLayout(16))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"template": "winograd"},
        {"template": "conv2d_direct", "ic_bn": 16},
        {**PLAIN.to_json(), "extra": 1},
        {**PLAIN.to_json(), "out_bn": 16},
        {**PLAIN.to_json(), "reg_n": "16"},
        {**PLAIN.to_json(), "reg_n": -1},
        {**PLAIN.to_json(), "reg_n": 0},
        {**PLAIN.to_json(), "reg_n": True},
        {**DIRECT.to_json(), "unroll_ker": 1},
        {**DIRECT.to_json(), "out_bn": -16},
    ],
)
def test_bad_schemes_are_refused(data):
    with pytest.raises(ValueError, match=r"template|parameters"):
        scheme_from_json(data)


def test_a_fold_to_the_kernels_own_block_is_refused():
    """Otherwise a record could name a scheme by two spellings."""
    with pytest.raises(ValueError, match="out_bn=32 is oc_bn"):
        scheme_from_json({**DIRECT.to_json(), "out_bn": 32})
