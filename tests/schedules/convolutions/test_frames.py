"""Convolutions over volumes, by every template, against the definition."""

from dataclasses import replace
from itertools import pairwise

import needs
import numpy as np
import pytest
from conv_reference import EPILOGUES, check_template, written
from conv_workloads import conv_workload
from kernel_harness import HOST, run

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    conv2d,
    convolve,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.operators.frame_pool import FramePoolWorkload, lower_frame_pool
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.numerics import Numerics, Quantisation
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

LANES = HOST.lanes("float32")
WINDOWS = [
    Frames(5, 3, padding=(1, 1)),
    Frames(6, 2, stride=2, padding=(1, 0)),
    Frames(7, 3, dilation=2),  # within the volume
    Frames(1, 3, padding=(1, 1)),  # one depth slice between two of padding
    Frames(4, 1, stride=3),
    Frames(3, 4, stride=2, dilation=2, padding=(5, 2)),  # more padding than volume
]


def workload(frames, volumes, channels, size, outs, kernel, **more):
    inner = channels * frames.kernel
    images = volumes * frames.out_depth
    return conv_workload(images, inner, *size, outs, kernel, frames=frames, **more)


# By template: workloads of the most awkward sizes.
WORKLOADS = {
    "conv2d_direct": lambda f, v: workload(
        f, v, 2 * LANES + 3, (5, 7), LANES + 1, (3, 2), stride=(2, 1), padding=(1, 0, 0, 1)
    ),
    "conv2d_nchw": lambda f, v: workload(f, v, 5, (4, 9), 7, (3, 3), padding=(1, 1, 1, 1)),
    "conv2d_winograd": lambda f, v: workload(
        f, v, LANES + 1, (5, 6), 2 * LANES - 3, (3, 3), padding=(1, 0, 2, 1)
    ),
    "conv2d_pointwise": lambda f, v: workload(
        f, v, 2 * LANES + 1, (3, 5), LANES + 3, (1, 1), stride=(2, 1)
    ),
    "conv2d_depthwise": lambda f, v: workload(
        f, v, LANES + 3, (5, 6), LANES + 3, (3, 3), padding=(1, 1, 0, 1), groups=LANES + 3
    ),
    "conv2d_grouped": lambda f, v: workload(
        f, v, 2 * LANES, (5, 4), 2 * LANES, (3, 3), padding=(0, 1, 1, 1), groups=LANES
    ),
    "direct in groups": lambda f, v: workload(
        f, v, 2 * LANES, (5, 4), 4 * LANES, (3, 3), padding=(0, 1, 1, 1), groups=2
    ),
    "nchw in groups": lambda f, v: workload(f, v, 6, (5, 4), 9, (2, 3), groups=3),
    "direct, few channels": lambda f, v: workload(
        f, v, 3, (9, 8), LANES, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)
    ),
}
TEMPLATES = {"direct": "conv2d_direct", "nchw": "conv2d_nchw"}
HASWELL = parse_target("llvm -mcpu=haswell")
HALVES = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="float32")
BYTES = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
ABOVE_ZERO = replace(BYTES, quantised=(("data", Quantisation("tensor", symmetric=False)),))
# Integers and bfloat16; a volume is padded by depth slices of zero points.
ROUNDED = {
    "bytes": lambda f, v: workload(
        f, v, LANES + 1, (4, 5), LANES + 3, (3, 2), padding=(1, 0, 0, 1), numerics=ABOVE_ZERO
    ),
    "bytes of pixels": lambda f, v: workload(
        f, v, 2 * LANES, (3, 4), LANES, (1, 1), numerics=ABOVE_ZERO
    ),
    "symmetric bytes": lambda f, v: workload(
        f, v, 5, (6, 5), LANES, (1, 3), stride=(2, 1), numerics=BYTES
    ),
    "bfloat16": lambda f, v: workload(
        f, v, LANES + 5, (4, 3), LANES, (3, 3), padding=(1, 1, 1, 1), numerics=HALVES
    ),
}


def template_of(name):
    return TEMPLATES.get(name.partition(" ")[0].rstrip(","), name)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("number", range(len(WINDOWS)))
@needs.one_in(3)
def test_templates_agree_with_the_definition(name, number):
    frames = WINDOWS[number]
    made = WORKLOADS[name](frames, 1 + number % 2)
    own = [s for s in registry.schemes(made, HOST) if s.template == template_of(name)]
    # Another pair of layouts each time.
    check_template(made, own[number % len(own)], threads=1 + number % 2)


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("number", range(len(WINDOWS)))
@needs.one_in(3)
def test_rounded_volumes_agree_with_the_definition(name, number):
    made = ROUNDED[name](WINDOWS[number], 1 + number % 2)
    if made.numerics.output == "uint8":
        steps = (EpilogueOp("bias_add"), EpilogueOp("rescale"), EpilogueOp("quantise", (101.0,)))
        made = replace(made, epilogue=steps)
    target = HASWELL if made.numerics == HALVES else HOST
    own = [s for s in registry.schemes(made, target) if s.template == "conv2d_dot"]
    scheme, operands = own[number % len(own)], random_operands(made, number)
    (got,) = written(made, scheme, operands, 1 + number % 2, target, (1,))
    assert wrong_answer(scheme, got, conv2d(made, operands)) is None


def test_epilogues_and_folded_layouts():
    made = workload(
        Frames(4, 3, padding=(1, 1)), 1, LANES, (4, 5), 2 * LANES, (1, 1), epilogue=EPILOGUES[1]
    )
    scheme = next(s for s in registry.schemes(made, HOST) if s.template == "conv2d_pointwise")
    wide, one = DataLayout(2 * LANES), DataLayout(LANES)
    for layouts in ((one, wide), (wide, one)):
        folded = registry.fold(made, scheme, *layouts, HOST)
        assert (folded.in_layout, folded.out_layout) == layouts
        check_template(made, folded)


def test_the_definition_agrees_with_sums_of_images():
    """A window over depth slices is a sum of convolutions of images."""
    frames = Frames(5, 2, stride=2, dilation=3, padding=(2, 1))
    made = workload(frames, 2, 4, (3, 4), 6, (2, 3), groups=2, padding=(0, 1, 1, 0))
    rng = np.random.default_rng(0)
    data = rng.standard_normal(made.input_shape)
    weights = rng.standard_normal(made.kernel_shape)
    within = conv_workload(10, 4, 3, 4, 6, (2, 3), groups=2, padding=(0, 1, 1, 0))
    taps = [convolve(within, data, weights[:, first:last]) for first, last in pairwise((0, 2, 4))]
    expected = np.zeros((2, frames.out_depth, 6, *made.output_shape[2:]))
    for d in range(frames.out_depth):
        for tap, images in enumerate(taps):
            depth = 2 * d + 3 * tap - 2
            if 0 <= depth < 5:
                expected[:, d] += images.reshape(2, 5, *images.shape[1:])[:, depth]
    got = convolve(made, data, weights)
    np.testing.assert_allclose(got, expected.reshape(got.shape), atol=1e-12)


def test_workloads_have_names_and_are_kept():
    made = workload(Frames(5, 3, 2, padding=(1, 0)), 2, 4, (3, 6), 8, (1, 2))
    assert str(made) == "2x4x5x3x6 -> 8, 3x1x2 /(2, 1, 1)"
    assert Conv2dWorkload.from_json(made.to_json()) == made
    assert made.flops == 2 * made.batch * 8 * 3 * 5 * 12 * 2
    for wrong in ([5, 3, 2, 1, 1], [5, 9, 1, 1, 0, 0], [5, 3, 2, 1, -1, 1], [5, 3, 2, 1, 0, 9]):
        with pytest.raises(ValueError, match=r"depth|values|impossible"):
            Conv2dWorkload.from_json({**made.to_json(), "frames": wrong})


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("block", [1, LANES])
def test_pooling_along_the_depth(kind, block):
    frames = Frames(7, 3, stride=2, dilation=2, padding=(2, 2))
    pool = FramePoolWorkload(kind, 2, (LANES + 3, 3, 5), frames)
    form = Format(DataLayout(block), "float32")
    data = np.random.default_rng(1).standard_normal(pool.input_shape, np.float32)
    packed = form.layout.pack(data)
    got = run(lower_frame_pool(pool, form, HOST), [packed], form.shape(pool.output_shape))
    volumes = data.reshape(2, 7, *pool.image)
    expected = []
    for v in range(2):
        for d in range(frames.out_depth):
            inside = [i for i in range(2 * d - 2, 2 * d + 3, 2) if 0 <= i < 7]
            window = volumes[v, inside]
            expected.append(window.max(0) if kind == "max" else window.mean(0))
    got = form.layout.unpack(got, LANES + 3)
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-6, atol=1e-6)
