"""Formulas for integers, found from their values at a few sizes."""

import random

import pytest

from neocpu.foundation.size_formulas import Term
from neocpu.schedules.tir.value_table import ValueTable

HEIGHTS = (59, 161, 271, 483, 697, 907, 1131, 1951, 84, 330, 578, 750, 1210, 1404, 222, 1662)
WIDTHS = (67, 173, 379, 489, 801, 1127, 513, 1739, 90, 1508, 444, 136, 618, 1910, 276, 1042)


def table_of(*formulas):
    """Return a table, and the term that it finds for each formula of a height and a width."""
    table = ValueTable([HEIGHTS, WIDTHS])
    pairs = list(zip(HEIGHTS, WIDTHS, strict=True))
    return table, table.find_all([tuple(formula(h, w) for h, w in pairs) for formula in formulas])


@pytest.mark.parametrize(
    "formulas",
    [
        [lambda h, w: h],
        [lambda h, w: 3 * w + 5],
        [lambda h, w: w - 11],
        [lambda h, w: (h + 2 - 3) // 2 + 1],
        [lambda h, w: -(-w // 6)],
        [lambda h, w: 48 * -(-w // 48)],
        [lambda h, w: h // 7],
        [lambda h, w: (3 * h + 1) // 4],
        [lambda h, w: h * w],
        [lambda h, w: h + w],
        [lambda h, w: -(-h // 4), lambda h, w: -(-w // 4), lambda h, w: -(-h // 4) * -(-w // 4)],
        [lambda h, w: (h + 2) * (w + 2), lambda h, w: 16 * (w + 2)],
        [lambda h, w: (h + 1) // 2, lambda h, w: -(-((h + 1) // 2) // 5)],
    ],
)
def test_formulas_hold_at_other_sizes(formulas):
    table, terms = table_of(*formulas)
    assert terms is not None
    rng = random.Random(0)
    for _ in range(200):
        h, w = rng.randrange(16, 3000), rng.randrange(16, 3000)
        values = table.evaluate([h, w])
        for formula, term in zip(formulas, terms, strict=True):
            assert values[term.number] == formula(h, w), (h, w)


def test_constants_and_known_values_need_no_entry():
    table, terms = table_of(lambda h, w: 7, lambda h, w: w, lambda h, w: h + 1, lambda h, w: h + 1)
    assert terms == [Term(7), *(Term(number, is_entry=True) for number in (1, 2, 2))]
    assert len(table.entries) == 1


def test_values_without_a_formula_are_not_guessed():
    rng = random.Random(1)
    table, found = table_of(lambda h, w: rng.randrange(1000))
    assert found is None
    assert not table.entries


def test_values_with_several_formulas_are_not_guessed():
    """Tiles of 46 columns may be as many as tiles of 48 at a few sizes."""
    values = [-(-w // 48) for w in (67, 73, 79, 101, 127, 139)]
    assert ValueTable([(67, 73, 79, 101, 127, 139)]).find(values) is None
    assert ValueTable([WIDTHS]).find([-(-w // 48) for w in WIDTHS]) is not None
