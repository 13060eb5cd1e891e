"""Elementwise operators, and our own activations that Relax has none for.

As one operator, an activation is a step in an epilogue; as several, it would be passes over memory.
"""

from __future__ import annotations

from typing import Final

from tvm import relax, te
from tvm.ir import Call, Op

from neocpu.ir.expressions import Expr, register_operator
from neocpu.schedules.vocabulary.steps import NO_OPERAND, STEP_KINDS, find_kind

HARD_SWISH: Final = "neocpu.hard_swish"  # ``x * clip(x + 3, 0, 6) / 6``
MISH: Final = "neocpu.mish"  # ``x * tanh(log(1 + exp(x)))``


def _register(name: str) -> None:
    kind = find_kind(name, NO_OPERAND)
    assert kind is not None
    emit = STEP_KINDS[kind].emit

    def computed(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: emit(data(*at), None), name=kind)

    def legalized(builder: relax.BlockBuilder, call: Call) -> Expr:
        return builder.call_te(computed, call.args[0], primfunc_name_hint=kind)

    def inferred(call: Call, _: relax.BlockBuilder) -> relax.Type:
        return call.args[0].ty

    register_operator(name, inferred, legalized)


for _name in (HARD_SWISH, MISH):
    _register(_name)


def activation(name: str, data: Expr) -> Call:
    return Call(Op.get(name), [data])


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
