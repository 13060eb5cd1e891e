"""A header as people read it: one line, or one screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from neocpu.foundation.plain_text import shortened
from neocpu.foundation.units import size
from neocpu.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from neocpu.runtime.artifact_file.header import ArtifactHeader, Placement

SHOWN: Final = 6
"""Inputs or outputs that are shown: with all else, they fit on a screen of 24 lines."""
LONGEST: Final = 100
"""Characters of a name or tensor that are shown."""


def summary(header: ArtifactHeader) -> str:
    """Return name, inputs, outputs and target on one line."""
    return (
        f"{shortened(header.name, LONGEST)}: {', '.join(_tensors(header.inputs))} -> "
        f"{', '.join(_tensors(header.outputs))}; {shortened(header.target, LONGEST)}"
    )


def header_text(header: ArtifactHeader) -> str:
    """Return what there is to know of an artifact on a screen; its plan is for `explain`."""
    versions = (
        f"neocpu {header.neocpu_version}, apache-tvm {header.tvm_version}, "
        f"apache-tvm-ffi {header.ffi_version}"
    )
    weights = f"{size(_end(header.weights))}, {len(header.weights)} of them"
    fields = [
        *(("input", text) for text in _tensors(header.inputs)),
        *(("output", text) for text in _tensors(header.outputs)),
        ("target", header.target),
        ("machine", header.machine),
        ("instructions", ", ".join(header.isa_features) or "no extensions"),
        ("threads", f"planned for {header.threads}"),
        ("weights", weights),
        ("activations", size(header.arena_bytes)),
        ("accuracy", _accuracy(header.plan)),
        ("versions", versions),
        ("format", str(header.format)),
    ]
    width = max(len(name) for name, _ in fields)
    lines = (f"  {name:<{width}}  {shortened(value, LONGEST)}" for name, value in fields)
    return "\n".join((shortened(header.name, LONGEST), *lines))


def _tensors(specs: Sequence[TensorSpec]) -> list[str]:
    shown = [shortened(str(spec), LONGEST) for spec in specs[:SHOWN]]
    more = len(specs) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _end(weights: Sequence[Placement]) -> int:
    return max((weight.end for weight in weights), default=0)


def _accuracy(plan: dict[str, Any]) -> str:
    """Return what the plan promises of outputs, and what was found; plans may hold anything."""
    promised, found = plan.get("accuracy"), plan.get("verification")
    if not isinstance(promised, dict):
        return "unknown"
    error = found.get("norm_error") if isinstance(found, dict) else None
    checked = f"{error:.2g} found" if isinstance(error, float) else "not checked"
    return f"{promised.get('name')}, at most {promised.get('bound')} norm-wise, {checked}"
