"""The arguments of a program's kernels for sizes for which it cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neocpu.foundation.size_formulas import Term, value_of
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.traced_sizes import KernelKeys, integers_of, with_integers


def keys_at(
    known: Mapping[tuple[int, ...], KernelKeys], sizes: tuple[int, ...]
) -> KernelKeys | None:
    """Return the arguments for ``sizes``, by formulas of those that are ``known`` for others; None
    if an integer has no formula, or these are not arguments of the same kernels.
    """
    table = ValueTable(list(zip(*known, strict=True)))
    first, *_ = known.values()
    found: dict[str, list[tuple[Any, dict[str, Term]]]] = {}
    for name, keys in first.by_name.items():
        found[name] = []
        for number, key in enumerate(keys):
            try:
                each = [integers_of(one.by_name[name][number]) for one in known.values()]
            except (KeyError, IndexError):
                return None
            if any(one.keys() != each[0].keys() for one in each):
                return None
            terms: dict[str, Term] = {}
            for path in each[0]:
                if (term := table.find([one[path] for one in each])) is None:
                    return None
                terms[path] = term
            found[name].append((key, terms))
    values = table.evaluate(sizes)

    def at_sizes(key: Any, terms: Mapping[str, Term]) -> Any:
        return with_integers(key, {path: value_of(term, values) for path, term in terms.items()})

    return KernelKeys(
        by_name={name: [at_sizes(*one) for one in each] for name, each in found.items()}
    )
