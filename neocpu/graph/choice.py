"""The rules that a compilation leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.graph.table import RULES


def parse_disabled(names: Iterable[str]) -> frozenset[str]:
    """Return the names of the rules that are not to be applied.

    Raises UsageError if there is no such rule, or nothing compiles without it.
    """
    disabled = frozenset(names)
    known = {rule.name: rule for rule in RULES}
    for name in sorted(disabled):
        if name not in known:
            hint = did_you_mean(name, known) or "; see neocpu compile --list-rules"
            raise UsageError(f"there is no rule '{name}'{hint}")
        if known[name].required:
            raise UsageError(f"rule '{name}' cannot be disabled: nothing compiles without it")
    return disabled
