"""Names of the model's tensors across fusion, which names the results of its functions lv, lv1, …

Each variable's tensor gets a number. The same operators on the same tensors get the same number,
whichever functions they are in.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Var

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op, op_name, shape_values
from neocpu.ir.uses import bindings
from neocpu.lowering.memory.tensor_uses import rebound, replace_vars


class ValueNumbers:
    """The numbers of variables' tensors, across all modules that are numbered."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._tuples: dict[int, tuple[int, ...]] = {}

    def of(self, mod: tvm.IRModule) -> dict[Var, int]:
        """Return the numbers of the variables of ``main``, in order."""
        main = mod["main"]
        params = {param: self._number(("input", place)) for place, param in enumerate(main.params)}
        return self._within(main, mod, params)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _within(
        self, function: relax.Function, mod: tvm.IRModule, known: dict[Var, int]
    ) -> dict[Var, int]:
        for binding in bindings(function):
            known[binding.var] = self._of(binding.value, mod, known)
        return known

    def _of(self, expr: Expr, mod: tvm.IRModule, known: Mapping[Var, int]) -> int:
        if isinstance(expr, Var):
            return known[expr]
        if isinstance(expr, relax.Tuple):
            return self._tuple(tuple(self._of(field, mod, known) for field in expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            whole = self._of(expr.tuple_value, mod, known)
            if whole in self._tuples:
                return self._tuples[whole][int(expr.index)]
            return self._number(("item", whole, int(expr.index)))
        if isinstance(expr, Call):
            numbers = [self._of(arg, mod, known) for arg in expr.args]
            called = mod[expr.op] if isinstance(expr.op, GlobalVar) else None
            if isinstance(called, relax.Function):
                inner = self._within(called, mod, dict(zip(called.params, numbers, strict=True)))
                return self._of(called.body.body, mod, inner)
            # Most calls are of kernels and have no attributes; printing all of them takes long.
            attributes = "" if is_op(expr, "relax.call_tir") else str(expr.attrs)
            return self._number((op_name(expr) or str(expr.op), attributes, *numbers))
        return self._number(_leaf(expr))

    def _tuple(self, fields: tuple[int, ...]) -> int:
        number = self._number(("tuple", fields))
        self._tuples[number] = fields
        return number


def _leaf(expr: Expr) -> Hashable:
    if isinstance(expr, GlobalVar):
        return str(expr.name_hint)
    if isinstance(expr, relax.ShapeExpr) and (shape := shape_values(expr)) is not None:
        return shape
    if isinstance(expr, GenericConst) and (value := constant_value(expr)) is not None:
        return (str(value.dtype), value.shape, value.tobytes())
    return str(expr)


def with_names(fused: tvm.IRModule, before: tvm.IRModule, names: Collection[str]) -> tvm.IRModule:
    """Return a fused module in which variables of ``main`` have their names again, each once.

    `fused` is the result of ``FuseOps`` on ``before``, whose `names` are restored. Variables within
    a fused function get no name. If one tensor has two names, the second is lost.
    """
    numbers = ValueNumbers()
    wanted: dict[int, str] = {}
    for var, number in numbers.of(before).items():
        if str(var.name) in names:
            wanted.setdefault(number, str(var.name))
    main = fused["main"]
    parameters = set(main.params)
    renamed: dict[Var, Var] = {}
    for var, number in numbers.of(fused).items():
        if var in parameters:
            wanted.pop(number, None)
            continue
        if number in wanted:
            renamed[var] = type(var)(wanted.pop(number), var.ty)
        elif str(var.name) in names:
            renamed[var] = type(var)(f"{var.name}_", var.ty)
    blocks = [type(block)(list(_renamed(block.bindings, renamed))) for block in main.body.blocks]
    body = relax.SeqExpr(blocks, _over(main.body.body, renamed))
    result = tvm.IRModule(fused.functions, attrs=fused.attrs)
    result[fused.get_global_var("main")] = relax.Function(
        main.params, body, main.ret_ty, main.is_pure, main.attrs
    )
    return result


def _renamed(block: Any, renamed: Mapping[Var, Var]) -> Iterator[Any]:
    for binding in block:
        var = renamed.get(binding.var, binding.var)
        yield rebound(binding, var, _over(binding.value, renamed))


def _over(expr: Expr, renamed: Mapping[Var, Var]) -> Expr:
    return replace_vars(expr, lambda var: renamed.get(var, var))
