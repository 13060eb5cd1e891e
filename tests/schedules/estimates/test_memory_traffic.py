from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from neocpu.schedules.estimates.memory_traffic import (
    L2_WAYS,
    LINE,
    cold_weights,
    conflicts_in_l2,
    fork_seconds,
    stream_seconds,
    with_cores,
    with_memory,
)
from neocpu.schedules.vocabulary.target_parsing import parse_target

SERVER = parse_target("llvm -mcpu=znver3")


def test_one_thread_does_not_fork():
    assert fork_seconds(1, SERVER) == 0 < fork_seconds(2, SERVER)


def test_more_cores_read_more_and_meet_later():
    zen4 = parse_target("llvm -mcpu=znver4")
    assert with_cores(zen4, 2) is zen4
    rates = [with_cores(zen4, threads).rates for threads in (2, 16, 64)]
    assert rates[0].memory < rates[1].memory < rates[2].memory
    assert rates[0].fork < rates[1].fork < rates[2].fork
    assert {(each.frequency, each.own, each.beyond) for each in rates} == {
        (zen4.rates.frequency, zen4.rates.own, zen4.rates.beyond)
    }
    assert with_cores(SERVER, 64) is SERVER  # a CPU without a known machine


def test_each_last_level_cache_has_the_weights_that_its_cores_read():
    few, many = (with_cores(parse_target("llvm -mcpu=znver4"), threads) for threads in (8, 64))
    assert cold_weights(100, few) == cold_weights(100, SERVER) == 100
    assert cold_weights(100, many) == 800
    # Each group of channels is read in one cache if there are at least as many groups.
    assert [cold_weights(100, many, parts) for parts in (2, 8, 100)] == [400, 100, 100]
    assert [cold_weights(100, many, 100, times) for times in (3, 16)] == [300, 800]


def test_the_slowest_part_hides_most_of_the_others():
    _, beyond_l2, memory = SERVER.bandwidths
    alone = with_memory(1e-3, 0, 0, SERVER)
    assert alone == 1e-3
    bound = with_memory(1e-3, 0, 4e-3 * memory, SERVER)
    assert 4e-3 < bound < 4.5e-3
    assert with_memory(0, 3e-3 * beyond_l2, 0, SERVER) == pytest.approx(3e-3)


def test_a_board_waits_longer_for_memory():
    """Winograd's many weights thus pay off on servers, where each core reads few of them."""
    board = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    assert with_memory(0, 0, 1e6, board) > 4 * with_memory(0, 0, 1e6, SERVER)
    assert stream_seconds(1 << 24, board, 4) > 4 * stream_seconds(1 << 24, SERVER, 4)


def test_streams_share_the_memory_and_the_weights_in_caches():
    both = replace(SERVER, streams=2)
    assert with_memory(0, 0, 1e6, both) == 2 * with_memory(0, 0, 1e6, SERVER)
    assert with_memory(1e-3, 1e6, 0, both) == with_memory(1e-3, 1e6, 0, SERVER)
    cpu = parse_target("llvm -mcpu=znver5")
    weights = cpu.l3  # one stream finds room for half of them
    one, two = (replace(cpu, streams=n).in_network(weights, 1).rates.memory for n in (1, 2))
    assert two > one / 2


@pytest.mark.parametrize("image", [16, 28, 32, 48, 56, 64, 112, 128])
@pytest.mark.parametrize("chunks", [4, 8, 16, 64])
def test_conflicts_are_those_of_a_set_associative_cache(image, chunks):
    """Every chunk has four vertically adjacent pixels of 32 bytes; lines of each set count."""
    target = SERVER
    row = image * 32
    axes = (chunks, image * row), (4, row)
    sets = target.l2 // (L2_WAYS * LINE)
    lines = {(c * image * row + r * row) // LINE for c, r in product(range(chunks), range(4))}
    fullest = max(Counter(line % sets for line in lines).values())
    assert conflicts_in_l2(target, *axes) == (fullest >= L2_WAYS)
