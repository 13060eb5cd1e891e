from collections import Counter
from itertools import product

import pytest

from neocpu.schedules.memory import (
    DRAM_BANDWIDTH,
    L2_WAYS,
    L3_BANDWIDTH,
    LINE,
    conflicts_in_l2,
    fork_seconds,
    with_memory,
)
from neocpu.schedules.target import parse_target


def test_one_thread_does_not_fork():
    assert fork_seconds(1) == 0 < fork_seconds(2)


def test_the_slowest_part_hides_most_of_the_others():
    alone = with_memory(1e-3, 0, 0)
    assert alone == 1e-3
    bound = with_memory(1e-3, 0, 4e-3 * DRAM_BANDWIDTH)
    assert 4e-3 < bound < 4.5e-3
    assert with_memory(0, 3e-3 * L3_BANDWIDTH, 0) == pytest.approx(3e-3)


@pytest.mark.parametrize("image", [16, 28, 32, 48, 56, 64, 112, 128])
@pytest.mark.parametrize("chunks", [4, 8, 16, 64])
def test_conflicts_are_those_of_a_set_associative_cache(image, chunks):
    """Four pixels of 32 bytes, below each other, in every chunk: count the lines of each set."""
    target = parse_target("llvm -mcpu=znver3")
    row = image * 32
    axes = (chunks, image * row), (4, row)
    sets = target.l2 // (L2_WAYS * LINE)
    lines = {(c * image * row + r * row) // LINE for c, r in product(range(chunks), range(4))}
    fullest = max(Counter(line % sets for line in lines).values())
    assert conflicts_in_l2(target, *axes) == (fullest >= L2_WAYS)
