"""Compute equal expressions once."""

from __future__ import annotations

from collections.abc import Hashable

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst, GlobalVar, Op, Var

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr
from neocpu.ir.rewriting import Rewrite

#: Constants up to this size are compared by value (scales and biases), others by identity.
MAX_COMPARED_BYTES = 16 * 1024


@local_rule(Kind.REDUNDANCY)
def eliminate_common_subexpressions(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Equal expressions are computed once.

    ::

        y = f(x)                  y = f(x)
        z = f(x)          ->      z = y

    TVM's pass with the same purpose hashes the bytes of every constant, which takes half a second
    on VGG's weights, and leaves trivial bindings. Here a large constant equals only itself.
    """
    key = _expression_key(expr) if rewrite.reads_all else None
    if key is None:
        return None
    earlier = rewrite.met.setdefault(key, expr)
    return rewrite.variable(earlier)


def _expression_key(expr: Expr) -> Hashable | None:
    if isinstance(expr, relax.TupleGetItem):
        source = argument_key(expr.tuple_value)
        return None if source is None else ("get", source, expr.index)
    if not isinstance(expr.op, Op) or not expr.op.get_attr("FPurity"):
        return None
    args = tuple(argument_key(arg) for arg in expr.args)
    if None in args:
        return None
    attrs = 0 if expr.attrs is None else tvm_ffi.structural_hash(expr.attrs)
    types = tuple(tvm_ffi.structural_hash(ty) for ty in expr.ty_args)
    return (expr.op.name, args, attrs, types)


def argument_key(arg: Expr) -> Hashable | None:
    """Return a key for an argument: its identity if a variable, its value if a small constant."""
    if isinstance(arg, Var | GlobalVar):
        return arg  # type: ignore[no-any-return]
    if isinstance(arg, GenericConst):
        value = constant_value(arg)
        assert value is not None
        if value.nbytes > MAX_COMPARED_BYTES:
            return ("at", value.ctypes.data, str(arg.ty))
        return (str(arg.ty), value.tobytes())
    if isinstance(arg, relax.Tuple):
        fields = tuple(argument_key(field) for field in arg.fields)
        return None if None in fields else fields
    if isinstance(arg, relax.ShapeExpr | tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return (type(arg).__name__, str(arg.ty), str(arg))
    return None
