"""Gathered slices of channels agree with numpy."""

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, compile_for, float32, normal, run

from neocpu.schedules.operators.gather import lower_gather
from neocpu.schedules.vocabulary.layout import DataLayout, Format


@pytest.mark.parametrize(
    ("channels", "slices"),
    [
        ((16,), ((0, 16),)),
        ((17,), ((5, 6),)),
        ((58, 58), ((0, 29), (0, 29))),
        ((32, 24, 7), ((8, 24), (0, 24), (3, 7))),
        ((5, 5, 40), ((4, 5), (0, 1), (1, 39))),
        ((150, 90), ((3, 149), (2, 90))),
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize(("batch", "height", "width"), [(3, 1, 1), (2, 9, 11)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_slices(channels, slices, block, batch, height, width, dtype):
    layout = DataLayout(block)
    shapes = [(batch, c, height, width) for c in channels]
    inputs = [np.abs(60 * normal(s, seed)).astype(dtype) for seed, s in enumerate(shapes)]
    parts = [x[:, first:end] for x, (first, end) in zip(inputs, slices, strict=True)]
    expected = np.concatenate(parts, axis=1)
    func = lower_gather(shapes, slices, HOST, Format(layout, dtype))
    packed = [layout.pack(x) for x in inputs]
    got = run(func, packed, layout.shape(expected.shape), dtype)
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(layout.unpack(got, expected.shape[1]), expected)


def test_many_channels_are_a_loop():
    """LLVM would take minutes for hundreds of unrolled chunks."""

    def stores(channels: int) -> int:
        shapes = [(1, channels, 7, 7), (1, 40, 7, 7)]
        func = lower_gather(shapes, [(3, channels), (0, 40)], HOST, float32(16))
        return func.script().count("] = ")

    assert stores(16 * 200) == stores(16 * 20) < 20


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_compiles_for_other_cpus(target):
    shapes = [(1, 58, 28, 28)] * 2
    func = lower_gather(shapes, [(0, 29), (29, 58)], target, float32(8))
    assert "T.parallel" in func.script()
    assert compile_for(func, target)
