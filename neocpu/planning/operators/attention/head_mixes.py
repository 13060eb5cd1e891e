"""Scores of attention that are mixed across heads: 1x1 convolutions whose channels are the heads.

The dense layers over heads in talking-heads attention become such convolutions when the transposes
around them are removed (`neocpu.graph.reordering.cancel_layouts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir import Var

from neocpu.ir.constants import Array, constant_value, vector_along
from neocpu.ir.expressions import Expr, dtype_of, four_of, is_op, pair_of, static_shape
from neocpu.planning.operators.layout_op import Function, sole_definition


@dataclass(frozen=True, slots=True, eq=False)
class HeadMix:
    """A mix of heads, of scores ``(N, heads, queries, keys)``.

    Attributes
    ----------
    scores : Var
        The scores that are mixed.
    constants : array
        ``(heads * heads + heads,)``: the weights, a row for each resulting head, then the biases.
    through : tuple of Var
        The variables of the mix, in program order.
    """

    scores: Var
    constants: Array
    through: tuple[Var, ...]

    @property
    def heads(self) -> int:
        """The number of heads, the same before and after."""
        return int(static_shape(self.scores)[1])  # type: ignore[index]


def head_mix(function: Function, mixed: Expr) -> HeadMix | None:
    """Return the mix that makes a variable with one reader; None if no mix makes it."""
    value: Any = sole_definition(function, mixed)
    through, bias = [mixed], None
    if is_op(value, "relax.add"):
        constant, mixed = constant_value(value.args[1]), value.args[0]
        bias = None if constant is None else vector_along(constant, 4, 1)
        if bias is None or static_shape(value) != static_shape(mixed):
            return None
        value = sole_definition(function, mixed)
        through.insert(0, mixed)
    if value is None or not is_op(value, "relax.nn.conv2d") or dtype_of(value) != "float32":
        return None
    weights, attrs = constant_value(value.args[1]), value.attrs
    heads = (static_shape(value.args[0]) or (0, 0))[1]
    plain = (pair_of(attrs.strides), four_of(attrs.padding), int(attrs.groups))
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if weights is None or weights.shape != (heads, heads, 1, 1) or layouts != ("NCHW", "OIHW"):
        return None
    if plain != ((1, 1), (0, 0, 0, 0), 1):
        return None
    biases = np.broadcast_to(np.float32(0) if bias is None else bias, (heads,))
    constants = np.concatenate([weights.reshape(-1), biases]).astype(np.float32)
    return HeadMix(value.args[0], constants, tuple(through))
