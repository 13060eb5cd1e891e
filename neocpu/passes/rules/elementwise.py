"""Which operators compute each element of elements in its place alone."""

from __future__ import annotations

from typing import Final

from neocpu.planning.operators.elementwise_op import NAMES

ELEMENTWISE: Final = NAMES | {
    f"relax.{name}"
    for name in ("divide", "power", "sqrt", "rsqrt", "log", "astype", "where", "sin", "cos")
}
"""Their operands are broadcast, as numpy does it."""
