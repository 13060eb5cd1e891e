"""Parts of a plan that are also printed without a compiler, from an artifact alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from neocpu.foundation.units import duration, plural, size

if TYPE_CHECKING:
    from neocpu.runtime.header_parts import Prologue


def signature_text(inputs: Mapping[str, Sequence[int]]) -> str:
    """Return shapes by name as ``x[1,3,224,224] y[1,5]``, which identifies a signature."""
    return " ".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in inputs.items())


def packing_fields(prologue: Prologue | None) -> list[tuple[str, str]]:
    if prologue is None:
        return []
    took = "" if prologue.seconds is None else f"; that took {duration(prologue.seconds)}"
    count = plural(len(prologue.made), "packing")
    return [("packed at load", f"{size(prologue.made_bytes)}, {count} of these weights{took}")]


def precision_text(asked: str, counts: Mapping[str, int], dense: int = 0) -> str:
    """Return ``auto: 50 int8, 4 fp32 convolutions``; `dense` counts dense layers in integers."""
    if set(counts) <= {"fp32"} and asked in ("auto", "fp32") and not dense:
        return "fp32"
    total = "convolution" if sum(counts.values()) == 1 else "convolutions"
    layers = f", {plural(dense, 'int8 dense layer')}" if dense else ""
    listed = ", ".join(f"{n} {name}" for name, n in counts.items()) or "no"
    return f"{asked}: {listed} {total}{layers}"
