"""The model's tensors that a compiled model still has: their names across fusion, their places."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Var

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op, op_name, shape_values, static_shape
from neocpu.ir.model_names import channel_orders, is_numbered, renamed_by
from neocpu.ir.uses import bindings
from neocpu.lowering.memory.tensor_uses import rebound, replace_vars
from neocpu.plan.model_values import ModelValue
from neocpu.planning.quantised.grids import Grid
from neocpu.runtime.header_parts import Placement
from neocpu.schedules.vocabulary.layout import Format


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

    `fused` is the result of ``FuseOps`` on ``before``. Variables within a fused function get no
    name. If one tensor has two names, the second is lost.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """A tensor of the model, and the variable that holds it."""

    name: str
    variable: str  # its name, which no other variable has
    shape: tuple[int, ...]  # the shape that the model gives it, NCHW for feature maps
    form: Format | None = None  # a feature map's; None if it is stored as in the model
    grid: Grid | None = None
    error_factor: float = 1.0  # its kernel's largest error by that of direct summation in float32
    order: tuple[int, ...] = ()  # the model's channel at each position; empty if unchanged

    def at(self, place: StoredPlace) -> ModelValue | None:
        """Return it as artifacts describe it; None if the place holds something else."""
        value = ModelValue(
            name=self.name,
            calls=place.calls,
            offset=place.placement.offset,
            dtype=place.placement.dtype,
            shape=self.shape,
            block=1 if self.form is None else self.form.layout.block,
            error_factor=self.error_factor,
            scale=0.0 if self.grid is None else self.grid.scale,
            zero=0 if self.grid is None else self.grid.zero,
            order=self.order,
        )
        of_its_type = self.form is None or self.form.dtype == value.dtype
        return value if of_its_type and value.end == place.placement.end else None


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """The place of a variable's tensor."""

    calls: int  # the number of calls after which the tensor is there
    placement: Placement


def plain_value(var: Var, holder: Expr | None) -> StoredValue | None:
    """Return ``var`` as a value that ``holder`` stores as is, or reshaped; None if it cannot."""
    shape = static_shape(var)
    if not isinstance(holder, Var) or shape is None:
        return None
    own = static_shape(holder)
    if own is None or math.prod(own) != math.prod(shape):
        return None
    return StoredValue(name=str(var.name), variable=str(holder.name), shape=shape)


def of_the_model(
    values: Iterable[StoredValue | None], main: relax.Function
) -> tuple[StoredValue, ...]:
    """Return the tensors of the model, under its names; those that TVM named are left out."""
    orders, renamed = channel_orders(main), renamed_by(main)
    return tuple(
        replace(value, name=renamed.get(value.name, value.name), order=orders.get(value.name, ()))
        for value in values
        if value is not None and not is_numbered(value.name)
    )


def placed(
    values: Iterable[StoredValue], places: Mapping[str, StoredPlace]
) -> tuple[ModelValue, ...]:
    """Return the values that have a place in the arena, in the order of their calls."""
    found = (each.at(places[each.variable]) for each in values if each.variable in places)
    return tuple(sorted(filter(None, found), key=lambda value: value.calls))
