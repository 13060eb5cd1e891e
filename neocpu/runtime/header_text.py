"""What there is to know of an artifact as people read it: one line, or one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from neocpu.foundation.plain_text import shortened
from neocpu.foundation.units import plural
from neocpu.tensor_spec import TensorSpec

SHOWN: Final = 6
"""Inputs or outputs that are shown: with all else, they fit on a screen of 24 lines."""
LONGEST: Final = 100
"""Characters of a name or tensor that are shown."""


def summary(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], target: str
) -> str:
    """Return name, inputs, outputs and target on one line."""
    return (
        f"{shortened(name, LONGEST)}: {', '.join(tensors(inputs))} -> "
        f"{', '.join(tensors(outputs))}; {shortened(target, LONGEST)}"
    )


def screen(name: str, fields: Iterable[tuple[str, str]]) -> str:
    """Return a name, and names and values below it."""
    fields = list(fields)
    width = max(len(field) for field, _ in fields)
    lines = (f"  {field:<{width}}  {shortened(value, LONGEST)}" for field, value in fields)
    return "\n".join((shortened(name, LONGEST), *lines))


def tensors(specs: Sequence[TensorSpec]) -> list[str]:
    """Return tensors as text, and how many more there are than are shown."""
    shown = [shortened(str(spec), LONGEST) for spec in specs[:SHOWN]]
    more = len(specs) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def planned_for(threads: int, streams: int | None) -> str:
    """Return ``planned for 2``, or ``planned for 1, with 2 calls at once``."""
    at_once = "" if streams is None else f", with {plural(streams, 'call')} at once"
    return f"planned for {threads}{at_once}"


def accuracy(plan: Mapping[str, Any]) -> str:
    """Return what the plan promises of outputs, and what was found; plans may hold anything."""
    promised, found = plan.get("accuracy"), plan.get("verification")
    if not isinstance(promised, dict):
        return "unknown"
    error = found.get("norm_error") if isinstance(found, dict) else None
    checked = f"{error:.2g} found" if isinstance(error, float) else "not checked"
    each = "of each operator " if promised.get("name") == "bfloat16" else ""
    return f"{promised.get('name')}, {each}at most {promised.get('bound')} norm-wise, {checked}"
