"""Calls of a module: arrays in order or by name, and ``out`` only by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import neocpu
from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.arguments import call_text
from neocpu.runtime.module import load
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature


def test_two_inputs_are_two_arguments(two_way, two_way_module):
    image, mask = two_way.inputs()
    expected = two_way_module([image, mask])
    for found in (
        two_way_module(image, mask),
        two_way_module((image, mask)),
        two_way_module.submit(image, mask).result(30),
    ):
        assert isinstance(found, tuple)
        for output, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(output, other)


def test_inputs_by_name_give_outputs_by_name(two_way, two_way_module):
    image, mask = two_way.inputs()
    named = {"mask": mask, "image": image}
    expected = dict(zip(("sum", "same"), two_way_module(image, mask), strict=True))
    out = {name: np.empty_like(array) for name, array in expected.items()}
    for found in (
        two_way_module(named),
        two_way_module.run(named),
        two_way_module.submit(named).result(30),
        two_way_module(named, out=out),
    ):
        assert list(found) == ["sum", "same"]
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    np.testing.assert_array_equal(out["sum"], expected["sum"])


def test_inputs_as_keywords_are_shown_the_call(two_way, two_way_module):
    image, mask = two_way.inputs()
    with pytest.raises(
        ArgumentTypeError, match=r"are a mapping: m\({'image': image, 'mask': mask}\)$"
    ):
        two_way_module(image=image, mask=mask)


def test_a_second_array_is_no_place_for_results(linear, linear_module):
    """It would be overwritten, although the caller meant it as an input."""
    (x,) = linear.inputs()
    second = np.full((4, 33), 7, np.float32)
    wanted = (
        r"^the model takes 1 input, got 2: call m\(x\), where x is float32\[4,64\]; "
        r"results are written into the arrays of out=$"
    )
    for call in (linear_module, linear_module.submit):
        with pytest.raises(UsageError, match=wanted):
            call(x, second)
    with pytest.raises(TypeError, match="positional argument"):
        linear_module.run({"x": x}, {"y": second})
    assert (second == 7).all()
    np.testing.assert_array_equal(linear_module(x, out=second), linear_module(x))


def test_streams_and_sets_are_called_alike(linear, two_way):
    image, mask = two_way.inputs()
    with load(two_way.path, 1, streams=2) as streams:
        total, _ = streams(image, mask)
        np.testing.assert_array_equal(total, streams.run({"image": image, "mask": mask})["sum"])
        with pytest.raises(UsageError, match=r"takes 2 inputs, got 3: call m\(image, mask\)"):
            streams(image, mask, np.empty_like(image))


def test_the_right_call_is_shown():
    pixels = TensorSpec("pixel.values", "float32", (1, 3, 8, 8))
    assert (
        call_text(SignatureSet([Signature((pixels,), ())]))
        == "m(pixel_values), where pixel_values is float32[1,3,8,8]"
    )
    many = tuple(replace(pixels, name=f"x{number}", shape=(1,)) for number in range(40))
    text = call_text(SignatureSet([Signature(many, ())]))
    assert text.startswith("m(x0, x1, x2, x3, x4, x5, x6, x7, ...), where x0 is float32[1], x1")
    assert text.endswith("x7 is float32[1] and 32 more")


def test_what_is_no_array_is_a_type_error(linear, linear_module):
    (x,) = linear.inputs()
    for wrong in (
        lambda: linear_module.run([x]),
        lambda: linear_module(x, out="y"),
        lambda: linear_module.run({"x": [[1], []]}),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert isinstance(caught.value, ArgumentTypeError | UsageError)
        assert isinstance(caught.value, neocpu.NeoCPUError)
