"""Formulas of a kernel's extents from those that were noted while the kernel was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from neocpu.foundation.size_formulas import Term
from neocpu.schedules.tir.value_table import Values, ValueTable
from neocpu.schedules.vocabulary.formula_text import Formula


def formulas_by_values(
    noted: Sequence[Mapping[Formula, int]],
) -> Mapping[Values, Sequence[Formula]]:
    """Return the formulas that were noted for each of several kernels, by their values."""
    first, *others = noted
    found: dict[Values, list[Formula]] = defaultdict(list)
    for formula in first:
        if all(formula in other for other in others):
            found[tuple(each[formula] for each in noted)].append(formula)
    return found


def noted_formulas(noted: Sequence[Mapping[Formula, int]]) -> dict[Values, Formula]:
    """Return one of the formulas that were noted for each of several kernels, by their values.

    Of formulas with equal values the first one counts, which the others were made of; but one with
    more maxima comes before it: it holds where a tensor is too small for tiles, too.
    """
    found = formulas_by_values(noted)
    return {
        values: max(formulas, key=_maxima)
        for values, formulas in found.items()
        if len(set(values)) > 1
    }


def _maxima(formula: Formula) -> int:
    if not isinstance(formula, tuple):
        return 0
    operation, left, right = formula
    return (operation == "max") + _maxima(left) + _maxima(right)


def terms_of(
    table: ValueTable,
    every: Sequence[Values],
    noted: Mapping[Values, Formula],
    sizes: Mapping[str, Term],
) -> list[Term] | None:
    """Return the terms of a kernel's extents; None if one has no formula.

    TVM adds constants to noted integers, and multiplies them. What follows from none of them, such
    as the size of a fused operand, is looked for among all entries. `sizes` are those of formulas.
    """
    found = {
        values: table.express(formula, sizes)
        for values in every
        if (formula := _formula_of(values, noted)) is not None
    }
    left = [values for values in every if values not in found]
    others = table.find_all(left)
    if others is None:
        return None
    found |= dict(zip(left, others, strict=True))
    return [found[values] for values in every]


def _formula_of(values: Values, noted: Mapping[Values, Formula]) -> Formula | None:
    if values in noted:
        return noted[values]
    for known, formula in noted.items():
        apart = {value - own for value, own in zip(values, known, strict=True)}
        if len(apart) == 1:
            return ("+", formula, apart.pop())
        if all(own and value % own == 0 for value, own in zip(values, known, strict=True)):
            times = tuple(value // own for value, own in zip(values, known, strict=True))
            if len(set(times)) == 1:
                return ("*", formula, times[0])
            if times in noted:
                return ("*", formula, noted[times])
    for known, formula in noted.items():
        rest = tuple(value - own for value, own in zip(values, known, strict=True))
        if rest in noted:
            return ("+", formula, noted[rest])
    return None
