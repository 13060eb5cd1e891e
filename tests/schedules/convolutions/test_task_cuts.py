"""Tasks are cut along a second axis if the first has too few parts for the threads."""

from dataclasses import replace

import pytest
from conv_reference import check_template
from conv_workloads import conv_workload
from kernel_harness import HOST

from neocpu.schedules import registry
from neocpu.schedules.convolutions import pointwise_tiling
from neocpu.schedules.convolutions.task_cuts import finer_cut
from neocpu.schedules.convolutions.winograd import winograd_tiling
from neocpu.schedules.estimates.loop_threads import MANY_THREADS
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.scheme import PointwiseScheme, StrassenScheme, WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target

LANES = HOST.lanes("float32")
ONE = (1, 1, 1, 1)
ZEN4 = with_cores(parse_target("znver4"), 64)


def _shares(other, threads):
    """Return the busiest thread's share if the other axis has a number of equal parts."""

    def share(parts):
        tasks = parts * other
        return -(-tasks // threads) / tasks

    return share


def test_tasks_are_not_cut_if_there_are_enough_for_the_threads():
    assert finer_cut(1, 100, MANY_THREADS - 1, _shares(3, MANY_THREADS - 1)) == 1
    assert finer_cut(1, 100, 16, _shares(32, 16)) == 1
    assert finer_cut(4, 4, 16, _shares(1, 16)) == 4


def test_the_fewest_parts_that_fill_the_threads_are_taken():
    assert finer_cut(1, 100, 16, _shares(4, 16)) == 4
    assert finer_cut(1, 100, 16, _shares(12, 16)) == 4
    assert finer_cut(1, 3, 16, _shares(4, 16)) == 3  # all there are
    assert finer_cut(1, 100, 64, _shares(1, 64)) == 64


def test_an_axis_is_not_cut_for_nothing():
    assert (
        finer_cut(1, 2, 16, _shares(9, 16)) == 1
    )  # two rounds of half a task equal one round of one


def _pointwise(split):
    return PointwiseScheme(
        LANES, LANES, reg_n=6, reg_oc=2 * LANES, ic_block=4 * LANES, strip=1 << 20, oc_split=split
    )


def _winograd(split):
    return WinogradScheme(LANES, LANES, reg_n=2, tile=4, reg_oc=2 * LANES, strip=50, oc_split=split)


@pytest.mark.parametrize("threads", [16, 64])
@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
def test_a_small_image_of_few_channels_has_a_task_for_each_of_many_threads(split, threads):
    # 33 register tiles of pixels, and four of channels: neither fills 64 threads.
    workload = conv_workload(1, 4 * LANES, 14, 14, 8 * LANES, (1, 1))
    tiling = pointwise_tiling.Tiling(workload, _pointwise(split), LANES, threads)
    assert tiling.tasks == tiling.strips * tiling.groups
    assert 1 <= threads * tiling.busiest_share <= (1.1 if threads == 16 else 2)
    two = pointwise_tiling.Tiling(workload, _pointwise(split), LANES, 2)
    assert (two.strips, two.groups) == ((1, 2) if split else (2, 1))


def test_winograds_groups_are_cut_into_strips_too():
    workload = conv_workload(1, 64, 28, 28, 8 * LANES, (3, 3), padding=ONE)
    tiling = winograd_tiling.Tiling(workload, _winograd(True), LANES, 16)
    assert (tiling.groups, tiling.strips) == (4, 4)
    assert tiling.busiest_share <= 1.15 / 16
    assert winograd_tiling.Tiling(workload, _winograd(True), LANES, 2).strips == 1


def test_shorter_strips_have_larger_groups():
    # Groups have 2 of 40 blocks of channels each, or 3 if a strip has half the sums.
    workload = conv_workload(1, 64, 28, 28, 80 * 16, (3, 3), padding=ONE)
    tiling = winograd_tiling.Tiling(
        workload,
        WinogradScheme(16, 16, reg_n=4, tile=2, reg_oc=2 * 16, strip=50, oc_split=True),
        16,
        16,
    )
    assert (tiling.group, tiling.groups) == (3, 14)
    assert tiling.busiest_share <= 1.1 / 16


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
def test_both_axes_cut_match_naive(split):
    """Sizes are awkward, and there are more threads than parts of either axis."""
    flat = conv_workload(1, 2 * LANES + 3, 5, 7, 5 * LANES - 1, (1, 1))
    for workload in (flat, replace(flat, batch=3, stride=(2, 1))):
        check_template(workload, _pointwise(split), threads=16)
    window = conv_workload(1, LANES + 3, 13, 11, 5 * LANES - 1, (3, 3), padding=ONE)
    check_template(window, _winograd(split), threads=16)


@pytest.mark.parametrize(("batch", "threads", "tasks"), [(16, 64, 4), (1, 4, 4), (3, 2, 2)])
def test_images_are_tasks_before_any_of_them_is_cut(batch, threads, tasks):
    workload = conv_workload(batch, 8 * LANES, 56, 56, 8 * LANES, (1, 1))
    scheme = StrassenScheme(
        LANES, LANES, reg_n=6, reg_oc=LANES, ic_half=4 * LANES, strip=1 << 20, oc_split=False
    )
    tiling = pointwise_tiling.StrassenTiling(workload, scheme, LANES, threads)
    assert tiling.tiles.tasks == tasks


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
@pytest.mark.parametrize("threads", [2, 8, 64])
def test_blocks_that_overlap_are_of_one_task(threads, split):
    """Strassen's sums of a pixel depend on its place in a block: equal calls give equal bits."""
    for width in range(12, 80):
        workload = conv_workload(1, 8 * LANES, 1, width, 8 * LANES, (1, 1))
        scheme = StrassenScheme(
            LANES, LANES, reg_n=6, reg_oc=LANES, ic_half=4 * LANES, strip=2, oc_split=split
        )
        tiles = pointwise_tiling.StrassenTiling(workload, scheme, LANES, threads).tiles
        *_, last = (part * tiles.blocks // tiles.strips for part in range(tiles.strips))
        assert tiles.blocks - last > 1 or width % 12 == 0


def test_many_threads_may_choose_among_more_schemes():
    # 7x7 pixels have few tiles: the best schemes for two threads have too few tasks.
    workload = conv_workload(16, 512, 7, 7, 512, (3, 3), padding=ONE)
    few, many = (registry.schemes(workload, ZEN4, threads) for threads in (2, 64))
    assert set(few) < set(many)
    assert registry.schemes(workload, ZEN4) == few

    def least(schemes):
        return min(registry.estimate(workload, scheme, ZEN4, 64) for scheme in schemes)

    assert least(many) < least(few)
