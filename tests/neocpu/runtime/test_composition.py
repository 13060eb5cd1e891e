"""Compositions of batches, compared with all possible ones."""

import numpy as np
import pytest

from neocpu.runtime.composed.batch_plans import TABLE, FastestRuns, compositions

SIZES = (1, 2, 4, 8)
MOST = 32


def every_total(sizes, most):
    """Return the rows of every composition of sizes, and its number of runs of each size."""
    counts = np.indices([-(-most // size) + 1 for size in sizes]).reshape(len(sizes), -1)
    return np.array(sizes) @ counts, counts


@pytest.mark.parametrize("sizes", [SIZES, (8, 3), (16,), (1,)])
def test_no_composition_takes_less_time(sizes):
    rows, counts = every_total(sizes, MOST)
    for seed in range(20):
        times = np.random.default_rng(seed).uniform(0.1, 1, len(sizes))
        found = compositions(dict(zip(sizes, times, strict=True)), MOST)
        assert found[0] == ()
        for n in range(1, MOST + 1):
            best = (times @ counts)[rows >= n].min()
            cost = sum(times[sizes.index(size)] for size in found[n])
            assert cost == pytest.approx(best, rel=1e-12)


def test_each_run_has_a_row_to_do():
    for seed in range(50):
        times = np.random.default_rng(seed).uniform(0.1, 1, len(SIZES))
        for n, runs in enumerate(compositions(dict(zip(SIZES, times, strict=True)), MOST)):
            assert list(runs) == sorted(runs, reverse=True)
            assert sum(runs) >= n > sum(runs[:-1]) or n == 0


def test_five_rows_are_four_and_one_or_eight_with_some_to_spare():
    assert compositions({1: 1.0, 4: 3.0, 8: 5.0}, 5)[5] == (4, 1)
    assert compositions({1: 1.0, 4: 3.0, 8: 3.5}, 5)[5] == (8,)


def test_of_equally_long_ones_it_is_the_fewest_runs():
    assert compositions({1: 1.0, 2: 2.0, 4: 4.0}, 7)[4:] == ((4,), (4, 1), (4, 2), (4, 2, 1))


@pytest.mark.parametrize("rows", [5, TABLE, TABLE + 1, 10 * TABLE + 3])
def test_of_many_rows_most_have_the_fastest_plan(rows):
    runs = FastestRuns({1: 1.0, 4: 3.0, 8: 5.0})
    found = runs.all(rows)
    assert found[0] == runs.first(rows)
    assert sum(found) >= rows > sum(found[:-1])


def test_no_plan_of_many_rows_gives_way_to_slower_ones():
    """64 rows are the most a second: three such runs would do 160, with 32 to spare."""
    runs = FastestRuns({1: 10.0, 64: 63.0, 160: 160.0, 256: 253.0})
    assert runs.all(160) == (160,)
    assert runs.first(160) == 160
    assert runs.all(256) == (64,) * 4
