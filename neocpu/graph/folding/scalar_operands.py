"""Constants of one element become scalars, which kernels have in their code.

TVM makes an immediate of a constant without dimensions, and an operand that is read from memory of
every other one.
"""

from __future__ import annotations

from typing import Final

from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite

_BINARY: Final = (
    "add",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "subtract",
)


def _with_scalar(call: Expr, rewrite: Rewrite) -> Expr | None:
    if is_op(call, "relax.add", "relax.multiply") and dtype_of(call).startswith("float"):
        return None  # `FOLD_SCALE` knows which are biases, and makes scalars of the others
    shape = static_shape(call)
    for place, other in ((1, 0), (0, 1)):
        value = constant_value(call.args[place])
        if value is None or value.size != 1 or value.ndim == 0:
            continue
        if shape is None or static_shape(call.args[other]) != shape:
            return None  # it has dimensions that the other operand lacks
        args = list(call.args)
        args[place] = make_const(value.reshape(()))
        return Call(call.op, args, call.attrs, ret_ty=call.ty)
    return None


SCALAR_OPERANDS: Final = LocalRule(
    "scalar-operands",
    Kind.FOLDING,
    "A constant of one element becomes a number in the kernel's code.",
    operators=tuple(f"relax.{name}" for name in _BINARY),
    apply=_with_scalar,
)
