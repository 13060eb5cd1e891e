"""Names of the operators that compute each element from the elements at the same position."""

from __future__ import annotations

from typing import Final

from neocpu.ir.activations import HARD_SWISH, MISH

FINITE_ELEMENTWISE: Final = frozenset(
    f"relax.{name}"
    for name in (
        "add", "subtract", "multiply", "maximum", "minimum", "abs", "negative", "exp", "tanh",
        "sigmoid", "clip", "erf", "square", "nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh",
        "nn.leakyrelu",
    )
) | {HARD_SWISH, MISH}  # fmt: skip
"""Elementwise operators whose results are finite in the padded lanes of a block of channels."""

ELEMENTWISE: Final = FINITE_ELEMENTWISE | {
    f"relax.{name}"
    for name in ("divide", "power", "sqrt", "rsqrt", "log", "astype", "where", "sin", "cos")
}
"""All elementwise operators; they broadcast their operands as numpy does."""
