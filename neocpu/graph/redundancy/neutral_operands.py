"""Remove arithmetic with a neutral constant.

::

    x + 0  ->  x        x * 1  ->  x        x ** 1  ->  x
    x - 0  ->  x        x / 1  ->  x
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, has_type_of
from neocpu.ir.rewriting import Rewrite

_NEUTRAL: Final[Mapping[str, float]] = {
    "relax.add": 0.0,
    "relax.subtract": 0.0,
    "relax.multiply": 1.0,
    "relax.divide": 1.0,
    "relax.power": 1.0,
}
"""Neutral element of the right operand."""
_COMMUTATIVE: Final = ("relax.add", "relax.multiply")


def _other_operand(call: Expr, rewrite: Rewrite) -> Expr | None:
    sides = [(call.args[0], call.args[1])]
    if call.op.name in _COMMUTATIVE:
        sides.append((call.args[1], call.args[0]))
    for data, operand in sides:
        value = constant_value(operand)
        if (
            value is not None
            and has_type_of(data, call)
            and np.all(value == _NEUTRAL[call.op.name])
        ):
            return data
    return None


NEUTRAL_OPERANDS: Final = LocalRule(
    "neutral-operands",
    Kind.REDUNDANCY,
    "Adding 0 and multiplying by 1, and their inverses, go.",
    operators=tuple(_NEUTRAL),
    apply=_other_operand,
)
