"""Places in the arena: live tensors do not overlap, and little memory is wasted."""

import itertools

import numpy as np
import pytest

from neocpu.lowering.memory.arena import ALIGN, Span, place


def random_groups(rng, count, steps=40):
    """Return groups of one to four consecutive spans, each with its own lifetime."""
    groups = []
    for _ in range(count):
        sizes = rng.integers(0, 5000, int(rng.integers(1, 5)))
        ends = np.sort(rng.integers(0, steps, (len(sizes), 2)))
        offsets = np.cumsum(sizes) - sizes
        spans = zip(offsets, sizes, ends, strict=True)
        groups.append(tuple(Span(int(o), int(s), int(e[0]), int(e[1])) for o, s, e in spans))
    return groups


@pytest.mark.parametrize("seed", range(8))
def test_tensors_that_live_at_one_time_do_not_overlap(seed):
    groups = random_groups(np.random.default_rng(seed), 60)
    arena = place(groups)
    assert all(start % ALIGN == 0 for start in arena.starts)
    taken = [
        (index, start + span.offset, start + span.offset + span.size, span)
        for index, (start, group) in enumerate(zip(arena.starts, groups, strict=True))
        for span in group
    ]
    assert max(end for _, _, end, _ in taken) == arena.size
    for (i, a, b, one), (j, c, d, other) in itertools.combinations(taken, 2):
        if i != j and set(range(one.first, one.last + 1)) & set(range(other.first, other.last + 1)):
            assert b <= c or d <= a or one.size == 0 or other.size == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_arena_is_little_larger_than_its_live_tensors(seed):
    """Short-lived tensors of whole cache lines, as a chain of kernels makes them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 200, 80) * ALIGN
    steps = rng.choice([1, 1, 1, 2, 6], 80)
    groups = [(Span(0, int(sizes[i]), i, i + int(steps[i])),) for i in range(80)]
    busy = [sum(g[0].size for g in groups if g[0].first <= t <= g[0].last) for t in range(80)]
    assert max(busy) <= place(groups).size <= 1.2 * max(busy)


def test_a_part_keeps_its_place_free_until_it_is_written():
    """The second half of a long-lived concatenation is written late; others use it before."""
    joined = (Span(0, 1024, 0, 9), Span(1024, 1024, 8, 9))
    early = (Span(0, 1024, 3, 5),)
    arena = place([joined, early])
    assert (arena.starts, arena.size) == ((0, 1024), 2048)
    late = (Span(0, 1024, 3, 8),)
    assert place([joined, late]).size == 3072


def test_an_empty_program_needs_no_arena():
    assert (place([]).size, place([()]).starts) == (0, (0,))
