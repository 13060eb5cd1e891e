"""The arguments of a program's kernels for sizes for which it cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.traced_sizes import KernelKeys, integers_of, with_integers


def keys_at(
    known: Mapping[tuple[int, ...], KernelKeys], sizes: tuple[int, ...]
) -> KernelKeys | None:
    """Return the arguments for ``sizes``, by formulas of those that are ``known`` for others; None
    if an integer has no formula.
    """
    table = ValueTable(list(zip(*known, strict=True)))
    first, *_ = known.values()
    found: dict[str, list[Any]] = {}
    for name, keys in first.by_name.items():
        found[name] = []
        for number, key in enumerate(keys):
            each = [integers_of(one.by_name[name][number]) for one in known.values()]
            integers = {}
            for path in each[0]:
                term = table.find([one[path] for one in each])
                if term is None:
                    return None
                values = table.evaluate(sizes)
                integers[path] = values[term.number] if term.is_entry else term.number
            found[name].append(with_integers(key, integers))
    return KernelKeys(by_name=found)
