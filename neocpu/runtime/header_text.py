"""Describe an artifact for people, in one line or on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from neocpu.foundation.plain_text import shortened
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural
from neocpu.plan.outcome import Promise, Verification
from neocpu.plan.plan import Plan
from neocpu.runtime.shape_ranges import Extent, ranges_text

SHOWN: Final = 6
"""The most inputs or outputs that are shown, so that all fits on a screen of 24 lines."""
LONGEST: Final = 100
"""The most characters of a name or tensor that are shown."""


def summary(name: str, inputs: Sequence[str], outputs: Sequence[str], target: str) -> str:
    """Return name, inputs, outputs and target on one line."""
    return (
        f"{shortened(name, LONGEST)}: {', '.join(shown(inputs))} -> "
        f"{', '.join(shown(outputs))}; {shortened(target, LONGEST)}"
    )


def screen(name: str, fields: Iterable[tuple[str, str]]) -> str:
    """Return a heading with the names and values of fields below it."""
    fields = list(fields)
    width = max(len(field) for field, _ in fields)
    lines = (f"  {field:<{width}}  {shortened(value, LONGEST)}" for field, value in fields)
    return "\n".join((shortened(name, LONGEST), *lines))


def tensor_text(spec: TensorSpec, ranges: Sequence[Extent]) -> str:
    """Return a tensor with extents that may vary as text, like that of a `TensorSpec`."""
    bound = "up to " if spec.bounded else ""
    return f"{spec.name}: {spec.dtype}[{bound}{ranges_text(ranges, ', ')}]"


def shown(tensors: Sequence[str]) -> list[str]:
    """Return the texts of the first tensors, and the number of the others."""
    first = [shortened(text, LONGEST) for text in tensors[:SHOWN]]
    more = len(tensors) - len(first)
    return [*first, f"and {more} more"] if more else first


def planned_for(threads: int, streams: int | None) -> str:
    """Return ``planned for 2``, or ``planned for 1, with 2 calls at once``."""
    at_once = "" if streams is None else f", with {plural(streams, 'call')} at once"
    return f"planned for {threads}{at_once}"


def accuracy(plan: Plan | None) -> str:
    """Return the accuracy that a plan promises and the error found; None is an unknown plan."""
    if plan is None:
        return "unknown"
    promised, found = plan.accuracy, plan.verification
    each = "of each operator " if promised.of_each_operator else ""
    promise = f"{promised.name}, {each}at most {promised.bound} norm-wise"
    if found is None or found.norm_error is None:
        return f"{promise}, not checked"
    kept = kept_bound(promised, found)
    error = f"{found.norm_error:.2g} found"
    return f"{promise}, {error}" + (f": {kept}" if kept.startswith("above") else "")


def kept_bound(promised: Promise, found: Verification) -> str:
    """Return the bound that outputs kept: ``within the 0.0001 promised``, or a wider one.

    Larger errors are accepted up to `comparison.FLOAT32_FACTOR` times those of numpy in float32 or
    bfloat16.
    """
    coarse = promised.of_each_operator
    promise = f"the {promised.bound:.3g} promised{' of each operator' if coarse else ''}"
    if found.norm_error is not None and found.norm_error <= promised.bound:
        return f"within {promise}"
    single = found.float32_error
    errs = "infinite error" if single is None else f"{single:.2g}"
    return (
        f"above {promise}, within 4 times the {errs} of numpy "
        f"{'rounded to bfloat16' if coarse else 'in float32'}"
    )
