"""Layer normalisation of channels against numpy, of channels and pixels that fill no vectors."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.statistics.channel_norm import (
    ChannelNormWorkload,
    lower_channel_norm,
)
from neocpu.schedules.vocabulary.layout import DataLayout

EPSILON = 1e-6


@pytest.mark.parametrize(
    "shape", [(2, 17, 5, 7), (1, 40, 13, 17), (1, 3, 1, 1), (16, 16, 16, 16)], ids=str
)
@pytest.mark.parametrize("block", [1, 4, 16, 40])
def test_matches_numpy(shape, block):
    layout, channels = DataLayout(block), shape[1]
    x = 3 * normal(shape) + 50
    gamma, beta = normal((channels,), seed=1), normal((channels,), seed=2)
    packed = [layout.pack_channels(vector).reshape(-1) for vector in (gamma, beta)]
    kernel = lower_channel_norm(ChannelNormWorkload(shape, EPSILON), float32(block), HOST)
    data = layout.pack(x)
    if channels % block:
        data[:, -1, ..., channels % block :] = 3e38  # the contents of padded lanes do not matter
    got = run(kernel, [data, *packed], layout.shape(shape))
    assert not got[:, channels // block :, ..., channels % block :].any() or block == 1
    centred = x.astype(np.float64) - x.astype(np.float64).mean(1, keepdims=True)
    factor = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON)
    expected = centred * factor * gamma[:, None, None] + beta[:, None, None]
    np.testing.assert_allclose(layout.unpack(got, channels), expected, rtol=1e-4, atol=1e-4)
