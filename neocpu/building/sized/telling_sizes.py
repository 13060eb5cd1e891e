"""The sizes that tell apart formulas which are equal at all compared sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from neocpu.foundation.size_formulas import OPERATIONS, Entry, Operation, Term, value_of
from neocpu.schedules.tir.noted_formulas import formulas_by_values
from neocpu.schedules.tir.value_table import Values
from neocpu.schedules.vocabulary.formula_text import Formula

Sizes: TypeAlias = tuple[int, ...]


def telling_sizes(
    noted: Sequence[Mapping[Formula, int]],
    extents: Collection[Values],
    terms: Mapping[str, Term],
    entries: Sequence[Entry],
    candidates: Sequence[Sizes],
) -> list[frozenset[Sizes]]:
    """Return, for each choice that compared sizes leave open, the sizes that would decide it.

    An integer of a kernel may follow from any formula that has its values, or be a constant.
    `noted`: the values of formulas at each compared size. `extents`: those of the kernel.
    `terms`: of the sizes that formulas name. `candidates`: the sizes to choose from. Sets are empty
    where none of them decides the choice, and where none has to be made.
    """
    rows: list[Any] = [np.array(each, np.int64) for each in zip(*candidates, strict=True)]
    for entry in entries:
        operands = (value_of(term, rows) for term in (entry.left, entry.right))
        rows.append(_applied(entry.operation, *operands))
    keys = {name: value_of(term, rows) for name, term in terms.items()}
    found = set()
    for values, formulas in formulas_by_values(noted).items():
        is_constant = len(set(values)) == 1
        if not is_constant and (values not in extents or len(formulas) == 1):
            continue
        one, *rest = (_evaluated(each, keys) for each in formulas)
        differs = np.zeros(len(candidates), bool)
        if is_constant:
            differs |= one != values[0]
        for other in rest:
            differs |= one != other
        told = zip(candidates, differs, strict=True)
        found.add(frozenset(sizes for sizes, tells in told if tells))
    return list(found)


def fewest_telling(choices: Sequence[frozenset[Sizes]], most: int) -> list[Sizes]:
    """Return up to ``most`` sizes, one after the other that which decides most choices; of several
    the largest, for small images are more often special cases.
    """
    chosen: list[Sizes] = []
    left = [each for each in choices if each]
    while left and len(chosen) < most:
        every = sorted(set().union(*left), key=math.prod, reverse=True)
        best = max(every, key=lambda sizes: sum(sizes in each for each in left))
        chosen.append(best)
        left = [each for each in left if best not in each]
    return chosen


def _evaluated(formula: Formula, keys: Mapping[str, Any]) -> Any:
    """Return a formula's values at all candidates."""
    if isinstance(formula, str):
        return keys[formula]
    if isinstance(formula, int):
        return np.int64(formula)
    operation, left, right = formula
    return _applied(operation, _evaluated(left, keys), _evaluated(right, keys))


def _applied(operation: Operation, one: Any, other: Any) -> Any:
    """Apply an operation at all candidates; a quotient by nothing is 0."""
    if operation == "max":
        return np.maximum(one, other)
    if operation == "//":
        return np.where(other == 0, 0, one // np.where(other == 0, 1, other))
    return OPERATIONS[operation](one, other)
