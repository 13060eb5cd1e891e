"""Move activations before the reshapes and transposes that follow a layer.

::

    relu(reshape(conv2d(x, w)))    ->  reshape(relu(conv2d(x, w)))
    sigmoid(transpose(matmul(x)))  ->  transpose(sigmoid(matmul(x)))

There they are steps of the convolution or dense layer, which applies them to its results.
"""

from __future__ import annotations

from typing import Any, Final

from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import SHAPING, Expr, is_op
from neocpu.ir.rewriting import Rewrite

_LAYERS = ("relax.nn.conv2d", "relax.matmul", "relax.add")


def _sink(expr: Expr, rewrite: Rewrite) -> Expr | None:
    shaped: Any = rewrite.sole_definition(expr.args[0])
    if not is_op(shaped, *SHAPING) or not _follows_layer(shaped, rewrite):
        return None
    moved = rewrite.emit(Call(expr.op, [shaped.args[0], *expr.args[1:]], expr.attrs))
    return Call(shaped.op, [moved, *shaped.args[1:]], shaped.attrs)


def _follows_layer(shaped: Call, rewrite: Rewrite) -> bool:
    """Whether only reshapes and transposes with one reader lie between ``shaped`` and a layer."""
    inner = rewrite.sole_definition(shaped.args[0])
    if is_op(inner, *SHAPING):
        return _follows_layer(inner, rewrite)
    return is_op(inner, *_LAYERS)


ACTIVATE_FIRST: Final = LocalRule(
    "activate-first",
    Kind.REORDERING,
    "Activations move before reshapes and transposes, to the layer that these follow.",
    operators=(
        "relax.clip",
        "relax.nn.gelu",
        "relax.nn.gelu_tanh",
        "relax.nn.leakyrelu",
        "relax.nn.relu",
        "relax.nn.silu",
        "relax.sigmoid",
        "relax.tanh",
    ),
    apply=_sink,
)
