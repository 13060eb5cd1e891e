"""Which variables of a planned ``main`` are one tensor, and when each tensor is in use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.relax_utils import Expr, bindings, dtype_of, is_op, static_shape, used_vars


@dataclass(slots=True, eq=False)
class Uses:
    """Which variables are one tensor, and when each tensor is in use.

    Attributes
    ----------
    names : dict of Var to Expr
        What variables bound to a variable, or to a tuple of variables, stand for.
    roots : dict of Var to Var
        The allocation that a variable is a view of; of an allocation, itself.
    first, last : dict of Var to int
        Of each allocation, numbers of bindings; after the last binding comes the result.
    shared : set of Var
        Allocations that not only kernels use.
    """

    names: dict[Var, Expr] = field(default_factory=dict)
    roots: dict[Var, Var] = field(default_factory=dict)
    first: dict[Var, int] = field(default_factory=dict)
    last: dict[Var, int] = field(default_factory=dict)
    shared: set[Var] = field(default_factory=set)

    def resolve(self, expr: Expr) -> Expr:
        """Return ``expr`` over the variables that stand for nothing but themselves."""
        return replace_vars(expr, lambda var: self.names.get(var, var))

    def root(self, expr: Expr) -> Var | None:
        """Return the allocation that is ours to place and that ``expr`` is a view of."""
        root = self.roots.get(expr) if isinstance(expr, Var) else None
        return None if root in self.shared else root

    def touch(self, expr: Expr, step: int) -> None:
        """Note that the resolved ``expr`` uses its tensors at ``step``."""
        for var in used_vars(expr):
            if (root := self.roots.get(var)) is not None:
                self.first.setdefault(root, step)
                self.last[root] = step


def read_uses(main: relax.Function, mod: tvm.IRModule) -> Uses:
    uses = Uses()
    step = 0
    for step, binding in enumerate(bindings(main)):
        var, value = binding.var, uses.resolve(binding.value)
        if isinstance(binding, relax.VarBinding) and isinstance(value, Var | relax.Tuple):
            uses.names[var] = value
        elif is_placeable(value):
            uses.roots[var] = var
        elif is_reshape(value) and value.args[0] in uses.roots:
            uses.roots[var] = uses.roots[value.args[0]]
        elif not is_kernel_call(value, mod):
            uses.shared.update(uses.roots[v] for v in used_vars(value) if v in uses.roots)
        uses.touch(value, step)
    uses.touch(uses.resolve(main.body.body), step + 1)
    return uses


def is_placeable(value: Expr) -> bool:
    """Whether ``value`` allocates a tensor of static shape, of elements that modules hold."""
    return (
        is_op(value, "relax.builtin.alloc_tensor")
        and static_shape(value) is not None
        and dtype_of(value) in DTYPES
    )


def is_reshape(value: Expr) -> bool:
    return is_op(value, "relax.reshape") and static_shape(value) is not None


def is_kernel_call(value: Expr, mod: tvm.IRModule) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.op, GlobalVar)
        and isinstance(mod[value.op], tirx.PrimFunc)
    )


def bytes_in(var: Var) -> int:
    shape = static_shape(var)
    assert shape is not None
    return math.prod(shape) * bytes_of(dtype_of(var))


def replace_vars(expr: Expr, variable: Callable[[Var], Expr]) -> Expr:
    """Return ``expr`` with its variables replaced, and the fields of known tuples taken out."""
    if isinstance(expr, Var):
        return variable(expr)
    if isinstance(expr, Call):
        args = [replace_vars(arg, variable) for arg in expr.args]
        return Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([replace_vars(item, variable) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        value = replace_vars(expr.tuple_value, variable)
        known = isinstance(value, relax.Tuple)
        return value.fields[expr.index] if known else relax.TupleGetItem(value, expr.index)
    return expr
