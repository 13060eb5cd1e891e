"""Delta debugging of sequences."""

from hypothesis import given
from hypothesis import strategies as st

from neocpu.verification.reduction.reduce_model import shrink


def last(whole, fails):
    """Return the smallest failing part, and the number of attempts."""
    asked = []

    def counted(part):
        assert part
        assert list(part) == sorted(set(part))
        asked.append(part)
        return fails(part)

    smallest = tuple(whole)
    for part in shrink(whole, counted):
        assert len(part) < len(smallest)
        assert part in asked
        smallest = part
    return smallest, asked


@given(st.integers(1, 700), st.data())
def test_needed_elements_are_kept(count, data):
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    smallest, _ = last(range(count), lambda part: needed <= set(part))
    assert set(smallest) == needed


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_no_element_can_be_left_out(count, seed):
    """This holds for any failure, even a random one."""
    whole = tuple(range(count))

    def fails(part):
        return part == whole or hash((part, seed)) % 3 == 0

    smallest, _ = last(whole, fails)
    for at in range(len(smallest)):
        rest = smallest[:at] + smallest[at + 1 :]
        assert not rest or not fails(rest)


def test_neighbours_are_found_in_few_steps_and_little_work():
    for first in (0, 333, 349, 350, 697):
        needed = {first, first + 1, first + 2}
        smallest, asked = last(range(700), lambda part, needed=needed: needed <= set(part))
        assert set(smallest) == needed
        assert len(asked) < 60
        assert sum(map(len, asked)) < 8 * 700


def test_a_constant_failure_shrinks_to_one_element():
    assert last(range(9), lambda part: True)[0] == (0,)
    assert last(range(1), lambda part: True)[0] == (0,)
