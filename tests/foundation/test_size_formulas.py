"""Sizes and formulas."""

from __future__ import annotations

from neocpu.foundation.size_formulas import Entry, Size, Term, values_of


def test_values_follow_from_sizes_and_earlier_values():
    entries = [
        Entry("+", Term(0, is_entry=True), Term(1)),
        Entry("//", Term(1, is_entry=True), Term(2)),
        Entry("max", Term(2, is_entry=True), Term(4)),
        Entry("*", Term(3, is_entry=True), Term(-1)),
        Entry("//", Term(4, is_entry=True), Term(3)),
    ]
    assert values_of(entries, [10]) == [10, 11, 5, 5, -5, -2]
    assert values_of(entries, [2])[3] == 4


def test_the_nearest_size_is_in_range_and_in_step():
    size = Size(name="h", least=32, most=96, step=32, typical=64)
    assert [size.nearest(value) for value in (-5, 1, 47, 48, 64, 79, 80, 1000)] == [
        32, 32, 32, 64, 64, 64, 96, 96,
    ]  # fmt: skip
    assert [value in size for value in (0, 32, 48, 64, 128)] == [False, True, False, True, False]
    assert str(size) == "32..96/32"
    assert str(Size(name="n", least=1, most=8, step=1, typical=1)) == "1..8"
