"""Transposes and reshapes that undo each other vanish, past elementwise operators between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.convolution import Convolution
from neocpu.graph.redundancy.axis_parts import inputs_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value, make_const, with_rank
from neocpu.ir.elementwise import ELEMENTWISE
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    is_op,
    is_tensor,
    op_name,
    permutation_of,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite

_MAX_DEPTH = 16  # the most consecutive operators that a transpose or reshape moves past
_CHANNELS_FIRST = (0, 3, 1, 2)


class _Undoing:
    """One transpose or reshape, which moves before its operands until it meets its opposite."""

    def __init__(self, call: Call, rewrite: Rewrite) -> None:
        self._call = call
        self._rewrite = rewrite
        self.cancelled = self.added = 0

    def undone(self, value: Expr) -> Expr | None:
        made = self._rewrite.definition(value)
        if not is_op(made, str(op_name(self._call))):
            return None
        if is_op(made, "relax.permute_dims"):
            first, second = permutation_of(made), permutation_of(self._call)
            opposite = all(first[axis] == place for place, axis in enumerate(second))
        else:
            opposite = static_shape(made.args[0]) == static_shape(self._call)
        return made.args[0] if opposite else None

    def plan(self, value: Expr, depth: int = _MAX_DEPTH) -> Callable[[], Expr] | None:
        if (data := self.undone(value)) is not None:
            self.cancelled += self._rewrite.sole_definition(value) is not None
            return lambda: data
        made = self._rewrite.sole_definition(value)
        if depth and made is not None and self.moves(made):
            if is_op(made, "relax.matmul"):
                return self._convolved(made, depth - 1)
            if is_op(made, "relax.concat"):
                return self._joined(made, depth - 1)
            plans = [self._operand(arg, made, depth - 1) for arg in made.args]
            if any(plan is None for plan in plans):
                return None
            return lambda: self._moved(made, plans)
        if not isinstance(value, Var):
            return None
        self.added += 1
        args = [value, *self._call.args[1:]]
        return lambda: self._rewrite.emit(Call(self._call.op, args, self._call.attrs))

    def moves(self, made: Call) -> bool:
        if is_op(made, "relax.concat"):
            return is_op(self._call, "relax.permute_dims")
        if not is_op(made, "relax.matmul"):
            return op_name(made) in ELEMENTWISE and static_shape(made) is not None
        weights = constant_value(made.args[1])
        return (
            is_op(self._call, "relax.permute_dims")
            and permutation_of(self._call) == _CHANNELS_FIRST
            and weights is not None
            and weights.ndim == 2
            and weights.dtype == np.float32
            and dtype_of(made) == "float32"
            and static_shape(made) is not None
        )

    def _operand(self, arg: Expr, made: Call, depth: int) -> Expr | None:
        if not is_tensor(arg):
            return arg
        shape, constant = static_shape(made), constant_value(arg)
        if constant is not None:
            moved = self._constant(constant, shape)
            return None if moved is None else lambda: make_const(moved)
        return self.plan(arg, depth) if static_shape(arg) == shape else None

    def _convolved(self, made: Call, depth: int) -> Callable[[], Expr] | None:
        plan, weights = self.plan(made.args[0], depth), constant_value(made.args[1])
        if plan is None or weights is None:
            return None
        filters = np.ascontiguousarray(weights.T)[:, :, None, None]
        return lambda: self._rewrite.emit(Convolution(data=plan(), weights=filters).call())

    def _joined(self, made: Call, depth: int) -> Callable[[], Expr] | None:
        found = inputs_of(made, self._rewrite.definition)
        if found is None:
            return None
        plans = [self.plan(each, depth) for each in found[1]]
        known = [plan for plan in plans if plan is not None]
        axis = permutation_of(self._call).index(found[0])
        if len(known) < len(plans):
            return None
        return lambda: self._rewrite.emit(relax.op.concat([plan() for plan in known], axis))

    def _moved(self, made: Call, plans: list[Expr]) -> Expr:
        args = [plan() if callable(plan) else plan for plan in plans]
        return self._rewrite.emit(Call(made.op, args, made.attrs, made.ty_args))

    def _constant(self, constant: Array, shape: tuple[int, ...] | None) -> Array | None:
        if constant.size == 1:
            return constant.reshape(())
        if is_op(self._call, "relax.permute_dims"):
            axes = permutation_of(self._call)
            return with_rank(constant, len(axes)).transpose(axes)
        after = static_shape(self._call)
        return constant.reshape(after) if constant.shape == shape else None


@local_rule(Kind.REORDERING, "relax.permute_dims", "relax.reshape")
def cancel_layouts(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Transposes and reshapes move past elementwise operators and, of channels, dense layers to
    undo each other.

    ::

        transpose_back(f(transpose(x), c))                ->  f(x, transpose_back(c))
        transpose_back(concat([transpose(x), transpose(y)], i)) ->  concat([x, y], j)
        transpose_back(matmul(transpose(x), w))           ->  conv2d(x, w')   # 1x1

    A constant is transposed while compiling. A dense layer over channels that were moved after the
    pixels, or over heads that were moved after their scores, becomes a 1x1 convolution.
    """
    inner = rewrite.sole_definition(expr.args[0])
    undoing = _Undoing(expr, rewrite)
    if inner is None or static_shape(expr) is None or not undoing.moves(inner):
        return None
    plan = undoing.plan(expr.args[0])
    return plan() if plan is not None and undoing.added <= undoing.cancelled else None
