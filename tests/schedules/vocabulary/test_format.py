"""Formats: shapes, bytes, strides and packing of a layout of some element type."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format, KernelLayout

small = st.integers(1, 5)
formats = st.builds(
    Format,
    st.builds(DataLayout, st.integers(1, 8)),
    st.sampled_from(["float32", "int8", "uint8", "float16", "int32"]),
)


@given(formats, small, st.integers(1, 20), small, small)
def test_arrays_have_the_shape_and_type_of_their_format(form, n, c, h, w):
    x = np.arange(n * c * h * w).reshape(n, c, h, w).astype(form.dtype)
    packed = form.pack(x)
    assert packed.shape == form.shape(x.shape)
    assert packed.nbytes == form.bytes(x.shape)
    # Numpy's strides of axes with one element are arbitrary.
    assert np.empty(packed.shape, form.dtype).strides == form.strides(x.shape)
    np.testing.assert_array_equal(form.unpack(packed, c), x)


def test_formats_of_different_elements_differ():
    bytes_, floats = (Format(DataLayout(8), dtype) for dtype in ("int8", "float32"))
    assert bytes_ != floats
    assert floats.plain == Format(NCHW, "float32")
    assert (str(bytes_), str(floats.plain)) == ("NCHW8c int8", "NCHW float32")
    assert sorted({floats, bytes_, floats.plain}) == [floats.plain, floats, bytes_]
    with pytest.raises(AssertionError):
        bytes_.pack(np.zeros((1, 8, 2, 2), np.float32))


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3), small, small)
@pytest.mark.parametrize("dot", [1, 2, 4])
def test_weights_of_a_dot_group_lie_side_by_side(dot, o, i, k, outer, oc_bn):
    layout = KernelLayout(outer * dot, oc_bn, dot)
    assert KernelLayout.parse(str(layout)) == layout
    weights = np.arange(1, o * i * k * k + 1).reshape(o, i, k, k)
    packed = layout.pack(weights)
    assert packed.shape == layout.shape(weights.shape)
    np.testing.assert_array_equal(layout.unpack(packed, o, i), weights)
    if dot > 1:  # by definition
        places = np.ndindex(*packed.shape)
        for at in (place for place, _ in zip(places, range(200), strict=False)):
            oc, ic, y, x, group, lane, member = at
            out, channel = oc * oc_bn + lane, ic * layout.ic_bn + group * dot + member
            expected = weights[out, channel, y, x] if out < o and channel < i else 0
            assert packed[at] == expected


def test_names_of_kernel_layouts():
    assert str(KernelLayout(16, 32)) == "OIHW16i32o"
    assert str(KernelLayout(16, 32, 4)) == "OIHW4i32o4i"
    with pytest.raises(ValueError, match="not a kernel layout"):
        KernelLayout.parse("OIHW4i32o0i")
