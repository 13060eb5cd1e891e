"""Formulas of integers that are traced, and their text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from neocpu.foundation.size_formulas import Operation

Formula: TypeAlias = "str | int | tuple[Operation, Formula, Formula]"
"""The name of a size, a constant, or an operation and its operands."""


def to_text(noted: Mapping[Formula, int]) -> str:
    """Return formulas and their values in JSON."""
    return json.dumps(list(noted.items()))


def from_text(text: str) -> dict[Formula, int]:
    """Read what `to_text` returned."""

    def read(formula: Any) -> Formula:
        if not isinstance(formula, list):
            assert isinstance(formula, str | int), formula
            return formula
        operation, left, right = formula
        return operation, read(left), read(right)

    return {read(formula): value for formula, value in json.loads(text)}
