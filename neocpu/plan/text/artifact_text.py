"""Parts of a plan that are printed of an artifact too, where there is no compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from neocpu.foundation.units import duration, plural, size


def signature_text(inputs: Mapping[str, Sequence[int]]) -> str:
    """Return shapes by name as ``x[1,3,224,224] y[1,5]``, which tells signatures apart."""
    return " ".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in inputs.items())


def packing_fields(packing: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return what is packed when a set of shapes is loaded, of a prologue's summary."""
    if packing is None:
        return []
    took = "" if packing["seconds"] is None else f"; that took {duration(packing['seconds'])}"
    count = plural(packing["weights"], "packing")
    return [("packed at load", f"{size(packing['bytes'])}, {count} of these weights{took}")]


def precision_text(plan: Mapping[str, Any]) -> str:
    """Return ``auto: 50 int8, 4 fp32 convolutions``; ``fp32`` where nothing else was allowed.

    Parameters
    ----------
    plan : mapping
        Or what of it has its ``precision`` and ``computes_in``.
    """
    asked = str(plan.get("precision", "fp32"))  # an older neocpu had no other
    counts = plan["computes_in"] if "computes_in" in plan else computes_in(plan)
    dense = sum(op["kind"] == "dense" and "numerics" in op for op in plan.get("ops", ()))
    if set(counts) <= {"fp32"} and asked in ("auto", "fp32") and not dense:
        return "fp32"
    total = "convolution" if sum(counts.values()) == 1 else "convolutions"
    layers = f", {plural(dense, 'int8 dense layer')}" if dense else ""
    listed = ", ".join(f"{n} {name}" for name, n in counts.items()) or "no"
    return f"{asked}: {listed} {total}{layers}"


def computes_in(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return how many convolutions compute in what, the most frequent first."""
    convolutions = [op for op in plan["ops"] if op.get("kind") == "conv2d"]
    return dict(Counter(str(op.get("precision", "fp32")) for op in convolutions).most_common())
