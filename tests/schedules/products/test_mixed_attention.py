"""Attention whose heads are mixed before the softmax, after it or both, against numpy."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_harness import HOST, normal, run

from neocpu.schedules.products.mixed_attention import lower_mixed_attention, mix_size
from tests.schedules.products.test_attention import array_of, contiguous, expected, inputs_of


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "depth", "width", "biases"),
    [
        ((1, 4), 37, 196, 24, 24, ()),
        ((2, 3), 13, 5, 7, 20, [(3, 13, 5)]),
        ((1, 1), 1, 33, 3, 1, ()),
        ((2, 8), 31, 16, 8, 33, [(1, 31, 16), (2, 8, 1, 1)]),
        ((1, 2), 6, 600, 8, 8, ()),
    ],
)
@pytest.mark.parametrize("where", ["before", "after", "both"])
def test_matches_numpy(batch, queries, keys, depth, width, biases, where):
    w = contiguous(batch, queries, keys, depth, width, biases=biases)
    w = replace(w, mixed_before=where != "after", mixed_after=where != "before")
    arguments = inputs_of(w) + [normal((mix_size(batch[-1]),), 9 + i) for i in range(w.mixes)]
    flat = run(lower_mixed_attention(w, HOST, 2), arguments, (w.output.size,))
    got = array_of(w.output, flat)
    np.testing.assert_allclose(got, expected(w, *arguments), rtol=2e-5, atol=2e-5)
