import pytest

from neocpu.schedules.memory import DRAM_BANDWIDTH, L3_BANDWIDTH, with_memory


def test_the_slowest_part_hides_most_of_the_others():
    alone = with_memory(1e-3, 0, 0)
    assert alone == 1e-3
    bound = with_memory(1e-3, 0, 4e-3 * DRAM_BANDWIDTH)
    assert 4e-3 < bound < 4.5e-3
    assert with_memory(0, 3e-3 * L3_BANDWIDTH, 0) == pytest.approx(3e-3)
