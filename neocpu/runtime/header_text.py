"""What there is to know of an artifact as people read it: one line, or one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from neocpu.foundation.plain_text import shortened
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural

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
    each = "of each operator " if promised.get("name") == "bfloat16" else ""
    promise = f"{promised.get('name')}, {each}at most {promised.get('bound')} norm-wise"
    error = found.get("norm_error") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(error, float):
        return f"{promise}, not checked"
    kept = kept_bound(promised, found)
    return f"{promise}, {error:.2g} found" + (f": {kept}" if kept.startswith("above") else "")


def kept_bound(promised: Any, found: Mapping[str, Any]) -> str:
    """Return which bound outputs kept: ``within the 0.0001 promised``, or which other one.

    Those that err more are right as well, up to `reference.verdict.FLOAT32_FACTOR` times the error
    of numpy in float32: where a value lies between two steps of a quantisation, rounding decides.
    Empty if a plan, which may hold anything, does not say what was promised.
    """
    bound = promised.get("bound") if isinstance(promised, dict) else None
    if not isinstance(bound, float):
        return ""
    coarse = promised.get("name") == "bfloat16"
    promise = f"the {bound:.3g} promised{' of each operator' if coarse else ''}"
    error, single = found.get("norm_error"), found.get("float32_error")
    if isinstance(error, float) and error <= bound:
        return f"within {promise}"
    errs = f"{single:.2g}" if isinstance(single, float) else "infinite error"
    return (
        f"above {promise}, within 4 times the {errs} of numpy "
        f"{'rounded to bfloat16' if coarse else 'in float32'}"
    )
