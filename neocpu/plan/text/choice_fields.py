"""Fields of a plan's summary: processing in the artifact, and rules for graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def rule_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how often rules were applied, and which were not to be."""
    found = plan.get("rules", {})  # an older neocpu says nothing of them
    applied: Mapping[str, int] = found.get("applied", {})
    disabled: Sequence[str] = found.get("disabled", ())
    counts = ", ".join(f"{name} {count}" for name, count in applied.items())
    return [
        *([("rules", counts)] if counts else []),
        *([("without", ", ".join(disabled))] if disabled else []),
    ]


def processing_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a plan tells of it."""
    notes = plan.get("processing")  # an older neocpu had none
    return [("processing", str(note)) for note in notes] if isinstance(notes, list) else []
