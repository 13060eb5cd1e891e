"""Headers with joint launches of calls that need each other, or do not exist."""

import numpy as np
import pytest

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.header import MAX_LAUNCH
from neocpu.runtime.header_parts import Repeat
from neocpu.runtime.module import load
from tests.neocpu.runtime import test_repeats
from tests.neocpu.runtime.test_repeats import CALLS, LOOP, ROWS, SLICE, SLICES, ZERO, A, B

looped = test_repeats.looped

INDEPENDENT = [["add", ZERO, ZERO, A], ["add", ZERO, ZERO, B], ["add", SLICE, A, SLICE + 1]]
"""Two independent calls, and one that needs the first."""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("launches", [[], [[0, 2]], [[1, 2]]])
def test_in_a_loop_and_within_it(looped, threads, launches):
    path = looped.changed(
        INDEPENDENT, [Repeat(first=0, end=3, limit=ROWS)], SLICES, launches=launches
    )
    x = np.random.default_rng(0).standard_normal((ROWS, 16), np.float32)
    with load(path, threads) as module:
        for _ in range(20):
            out = module([x, np.array([1]), np.array([True])])
            np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("launches", "blamed"),
    [
        (calls, "launches")
        for calls in (
            *(7, {}, [0, 2], [[]], [[0]], [[0, 2, 0]], [[0, 1]], [[0, 0]], [[0, -2]], [[-1, 2]]),
            *([[0, 5]], [[3, 2]], [[4, 2]], [[0, 2**40]], [[2**40, 2]], [["0", 2]], [[0, 2.0]]),
            *([[0, 2], [1, 2]], [[2, 2], [0, 2]], [[0, MAX_LAUNCH + 1]], [None]),
            # A loop begins or ends between the calls.
            *([[0, 2]], [[0, 4]]),
        )
    ],
)
def test_what_cannot_be_is_refused(looped, launches, blamed):
    with pytest.raises(ArtifactError, match=rf"malformed header \({blamed}\)"):
        load(looped.changed(CALLS, [LOOP], SLICES, launches=launches))


@pytest.mark.parametrize(
    "calls",
    [
        [["add", ZERO, ZERO, A], ["add", A, ZERO, B]],
        [["add", A, ZERO, B], ["add", ZERO, ZERO, A]],
        [["add", ZERO, ZERO, A], ["add", ZERO, ZERO, A]],
        [["add", SLICE, ZERO, SLICE + 1], ["add", SLICE, ZERO, SLICE + 1]],
    ],
)
def test_calls_that_disturb_each_other_are_refused(looped, calls):
    path = looped.changed(calls, [Repeat(first=0, end=2, limit=ROWS)], SLICES, launches=[[0, 2]])
    with pytest.raises(ArtifactError, match="writes what one beside it has"):
        load(path)
