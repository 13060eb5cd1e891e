"""Sizes that tell formulas apart."""

from __future__ import annotations

from neocpu.building.sized.telling_sizes import fewest_telling, telling_sizes
from neocpu.foundation.size_formulas import Term

TERMS = {"w": Term(0, is_entry=True)}
WIDTH, HALF, LARGER = "w", ("//", "w", 2), ("max", ("//", "w", 2), 8)


def noted(*widths):
    """Return the values of formulas at some widths."""
    return [{WIDTH: w, HALF: w // 2, LARGER: max(w // 2, 8)} for w in widths]


def test_equal_formulas_have_sizes_at_which_they_differ():
    candidates = [(8,), (10,), (16,), (20,), (32,)]
    halves = (10, 16)
    (found,) = telling_sizes(noted(20, 32), {halves}, TERMS, (), candidates)
    assert found == {(8,), (10,)}


def test_formulas_of_no_extent_do_not_matter():
    assert telling_sizes(noted(20, 32), {(20, 32)}, TERMS, (), [(8,), (16,)]) == []


def test_a_constant_may_be_a_formula():
    both = [{WIDTH: w, ("max", WIDTH, 100): 100} for w in (20, 32)]
    (found,) = telling_sizes(both, {(20, 32)}, TERMS, (), [(8,), (100,), (101,), (300,)])
    assert found == {(101,), (300,)}


def test_a_quotient_by_nothing_is_nothing():
    quotient = ("//", WIDTH, ("//", WIDTH, 16))
    both = [{WIDTH: w, quotient: w // (w // 16)} for w in (32, 48)]
    (found,) = telling_sizes(both, {(32, 48)}, TERMS, (), [(8,), (32,), (48,), (64,)])
    assert found == {(8,)}


def test_few_sizes_decide_all_choices():
    choices = [frozenset({(8, 8), (8, 16)}), frozenset({(8, 16), (64, 8)}), frozenset({(4, 4)})]
    assert fewest_telling(choices, 5) == [(8, 16), (4, 4)]
    assert fewest_telling([*choices, frozenset()], 1) == [(8, 16)]
    assert fewest_telling([frozenset({(8, 8), (64, 64)})], 1) == [(64, 64)]
