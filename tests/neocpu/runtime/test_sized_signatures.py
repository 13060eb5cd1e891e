"""Signatures of modules that take ranges of extents: which one inputs have, and how they err."""

import gc
import re
import weakref

import numpy as np
import pytest
from sized_toys import HEIGHT, WIDTH, picture, sized

from neocpu.foundation.errors import UsageError
from neocpu.runtime.arguments import check_positional
from neocpu.runtime.shape_ranges import Range
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.sized_signatures import KEPT


def one_input():
    return sized(
        (HEIGHT, WIDTH), ((0, 2), (0, 3)), lambda h, w: ((1, 3, h, w),), lambda h, w: ((h * w,),)
    )


def refused(signatures, *shapes):
    with pytest.raises(UsageError) as told:
        signatures.of(shapes)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_sizes_are_read_off_the_inputs():
    found = picture().of([(1, 3, 480, 640), (1, 240)])
    assert found.sizes == (480, 640)
    assert [spec.shape for spec in found.inputs] == [(1, 3, 480, 640), (1, 240)]
    assert [spec.shape for spec in found.outputs] == [(1, 8, 60, 80)]
    assert found.number is None


def test_the_typical_signature_stands_for_all():
    signatures = SignatureSet([], picture())
    (typical,) = signatures.all
    assert typical.sizes == (256, 320)
    assert typical.number == 0
    assert picture().of([(1, 3, 256, 320), (1, 128)]).outputs == typical.outputs


def test_ranges_tell_what_is_fixed_chosen_and_what_follows():
    found = picture()
    assert found.inputs == ((1, 3, HEIGHT, WIDTH), (1, Range(32, 512)))
    assert found.outputs == ((1, 8, Range(8, 128), Range(8, 128)),)
    assert str(found) == "x[1,3,64..1024/8,64..1024/8] m[1,32..512]"


def test_an_extent_of_one_size_alone_is_fixed():
    same = sized((HEIGHT,), ((0, 0),), lambda h: ((h, max(h, 64), 64 + 0 * h),), lambda h: ((h,),))
    assert same.inputs == ((HEIGHT, HEIGHT, 64),)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 3, 100, 320),
            "input 'x': extent 2 is 100, and the module takes 64..1024 in steps of 8: the nearest "
            "is x[1,3,104,320]",
        ),
        ((1, 3, 256, 2000), "extent 3 is 2000.*the nearest is x[1,3,256,1024]"),
        ((1, 3, 8, 2001), "extent 2 is 8.*the nearest is x[1,3,64,1024]"),
        ((1, 4, 256, 320), "expected float32[1,3,64..1024/8,64..1024/8], got float32[1,4,256,320]"),
        ((1, 256, 320, 3), "it looks like NHWC, pass x.transpose(0, 3, 1, 2)"),
        ((256, 320, 3), "it looks like HWC, pass x.transpose(2, 0, 1)[None]"),
        ((3, 256, 320), "the batch axis is missing, pass x[None]"),
        ((), "expected float32[1,3,64..1024/8,64..1024/8], got float32[]"),
    ],
)
def test_other_shapes_are_refused_with_the_nearest(shape, message):
    wanted = ".*".join(map(re.escape, message.split(".*")))
    assert re.search(wanted, refused(one_input(), shape))


def test_inputs_that_disagree_are_refused():
    assert refused(picture(), (1, 3, 480, 640), (1, 100)) == (
        "input 'm': extent 1 is 100, and must be 240 because extent 2 of input 'x' is 480"
    )


def test_a_repeated_size_is_kept_and_memory_stays_flat():
    signatures = one_input()
    first = signatures.of([(1, 3, 64, 72)])
    assert signatures.of([(1, 3, 64, 72)]) is first
    assert signatures.asked.count((64, 72)) == 1
    for width in range(64, 1025, 8):
        signatures.of([(1, 3, 512, width)])
    assert signatures._kept.cache_info().currsize == KEPT
    assert signatures.of([(1, 3, 64, 72)]) == first


def test_dropped_signatures_are_freed_at_once():
    signatures = one_input()
    signatures.of([(1, 3, 64, 72)])
    watched = weakref.ref(signatures)
    gc.disable()
    try:
        del signatures
        assert watched() is None
    finally:
        gc.enable()


def test_arguments_are_checked_with_ranges():
    signatures = SignatureSet([], one_input())
    found, (array,) = check_positional(signatures, [np.zeros((1, 3, 64, 128), "float32")])
    assert found.sizes == (64, 128)
    assert array.shape == (1, 3, 64, 128)
    kind = re.escape("float32[1,3,64..1024/8,64..1024/8]")
    with pytest.raises(UsageError, match=rf"takes 1 input, got 2: call m\(x\), where x is {kind}"):
        check_positional(signatures, [array, array])
    with pytest.raises(UsageError, match=rf"expected {kind}, got dtype float64: convert it"):
        check_positional(signatures, [array.astype("float64")])


def test_some_shapes_choose_their_sizes_and_the_others_are_typical():
    found = picture()
    assert found.with_shapes({}) == found.typical
    assert found.with_shapes({"x": (1, 3, 480, 640)}).sizes == (480, 640)
    with pytest.raises(UsageError, match=r"extent 2 is 70.*the nearest is x.1,3,72,64"):
        found.with_shapes({"x": (1, 3, 70, 64)})
    with pytest.raises(UsageError, match="expected float32"):
        found.with_shapes({"x": (3, 64, 64)})
