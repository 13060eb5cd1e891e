"""Give every tensor between two kernels a fixed place in one arena, which ``main`` is handed.

TVM's own planning leaves two more calls per kernel in the code, to make a tensor
object and to name it: together they take as long as a small kernel. Here tensors become parameters
of ``main``, made once. And as places are ours to choose, a concatenation whose parts lie end to end
needs no kernel: those that make its parts write them where they belong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.planning.arena import Span, place
from neocpu.relax_utils import Expr, bindings, dtype_of, is_op, static_shape, used_vars
from neocpu.runtime.header import Placement
from neocpu.schedules.operators.concat import END_TO_END, lower_concat
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.layout import NCHW
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModule:
    """A module whose ``main`` takes, after its other parameters, the tensors between its kernels.

    Attributes
    ----------
    activations : tuple of Placement
        Of each of those parameters, in order, its place in the arena. Some overlap: those never
        busy at once, two shapes of one tensor, a concatenation and its parts.
    arena_bytes : int
        Size of the arena.
    """

    mod: tvm.IRModule
    activations: tuple[Placement, ...]
    arena_bytes: int


def plan_memory(mod: tvm.IRModule, target: CpuTarget) -> PlannedModule:
    """Replace the allocations of ``main`` by parameters, and concatenations by places.

    Parameters
    ----------
    mod : tvm.IRModule
        After ``relax.transform.CallTIRRewrite``, where kernels take their results as arguments.
        An allocation stays as it is if its size is not static or something but kernels reads it.
    target : CpuTarget
        For the kernels that copy what cannot be made in its place in a concatenation.
    """
    main = mod["main"]
    uses = _read(main, mod)
    joins = _find_joins(main, mod, uses)
    groups: dict[Var, list[Span]] = {}
    for root, span in _busy_spans(uses, joins):
        groups.setdefault(root, []).append(span)
    arena = place([tuple(spans) for spans in groups.values()])
    starts = dict(zip(groups, arena.starts, strict=True))
    emitter = _Emitter(mod, uses, joins, starts, target)
    return PlannedModule(emitter.run(), emitter.placements, arena.size)


@dataclass(slots=True, eq=False)
class _Uses:
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
        return _replace(expr, lambda var: self.names.get(var, var))

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


def _read(main: relax.Function, mod: tvm.IRModule) -> _Uses:
    uses = _Uses()
    step = 0
    for step, binding in enumerate(bindings(main)):
        var, value = binding.var, uses.resolve(binding.value)
        if isinstance(binding, relax.VarBinding) and isinstance(value, Var | relax.Tuple):
            uses.names[var] = value
        elif _is_placeable(value):
            uses.roots[var] = var
        elif _is_reshape(value) and value.args[0] in uses.roots:
            uses.roots[var] = uses.roots[value.args[0]]
        elif not _is_kernel_call(value, mod):
            uses.shared.update(uses.roots[v] for v in used_vars(value) if v in uses.roots)
        uses.touch(value, step)
    uses.touch(uses.resolve(main.body.body), step + 1)
    return uses


def _is_placeable(value: Expr) -> bool:
    """Whether ``value`` allocates a tensor of static shape, of elements that modules hold."""
    return (
        is_op(value, "relax.builtin.alloc_tensor")
        and static_shape(value) is not None
        and dtype_of(value) in DTYPES
    )


def _is_reshape(value: Expr) -> bool:
    return is_op(value, "relax.reshape") and static_shape(value) is not None


def _is_kernel_call(value: Expr, mod: tvm.IRModule) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.op, GlobalVar)
        and isinstance(mod[value.op], tirx.PrimFunc)
    )


def _bytes(var: Var) -> int:
    shape = static_shape(var)
    assert shape is not None
    return math.prod(shape) * bytes_of(dtype_of(var))


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """A concatenation without a kernel: its parts, and where each begins (bytes)."""

    output: Var
    parts: tuple[Var, ...]
    offsets: tuple[int, ...]
    copied: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Joins:
    """The concatenations without a kernel, by binding; and which tensors lie inside which."""

    at: dict[int, _Join]
    inside: dict[Var, tuple[Var, int]]

    def outermost(self, root: Var) -> tuple[Var, int]:
        """Return the tensor that ``root`` is finally a part of, and where in it (bytes)."""
        offset = 0
        while root in self.inside:
            root, distance = self.inside[root]
            offset += distance
        return root, offset


def _find_joins(main: relax.Function, mod: tvm.IRModule, uses: _Uses) -> _Joins:
    """Put every tensor into the first concatenation it is a part of, if it can be written there."""
    joins = _Joins({}, {})
    for step, binding in enumerate(bindings(main)):
        value = uses.resolve(binding.value)
        if not _is_kernel_call(value, mod) or END_TO_END not in (mod[value.op].attrs or {}):
            continue
        *parts, output = value.args
        whole = uses.root(output)
        if whole is None:
            continue
        sizes = [_bytes(part) for part in parts]
        offsets = tuple(sum(sizes[:i]) for i in range(len(sizes)))
        copied = []
        for part, offset in zip(parts, offsets, strict=True):
            root = uses.root(part)
            copied.append(root is None or root in joins.inside)
            if not copied[-1]:
                joins.inside[root] = (whole, offset)
        if not all(copied):
            joins.at[step] = _Join(whole, tuple(parts), offsets, tuple(copied))
    return joins


def _busy_spans(uses: _Uses, joins: _Joins) -> Iterator[tuple[Var, Span]]:
    """Yield what each kernel writes: the outermost tensor around it, and its bytes there."""
    joined = {join.output for join in joins.at.values()}
    for root, first in uses.first.items():
        if root not in joined and root not in uses.shared:
            outermost, offset = joins.outermost(root)
            yield outermost, Span(offset, _bytes(root), first, _last_use(root, uses, joins))
    for step, join in joins.at.items():
        outermost, start = joins.outermost(join.output)
        last = _last_use(join.output, uses, joins)
        for part, offset, copied in zip(join.parts, join.offsets, join.copied, strict=True):
            if copied:
                yield outermost, Span(start + offset, _bytes(part), step, last)


def _last_use(root: Var, uses: _Uses, joins: _Joins) -> int:
    """Return when the last tensor that ``root`` is a part of is read."""
    last = uses.last[root]
    while root in joins.inside:
        root, _ = joins.inside[root]
        last = max(last, uses.last[root])
    return last


class _Emitter:
    """Writes ``main`` anew: without allocations, names and joins, with the tensors' parameters."""

    def __init__(
        self,
        mod: tvm.IRModule,
        uses: _Uses,
        joins: _Joins,
        starts: dict[Var, int],
        target: CpuTarget,
    ) -> None:
        self._mod = mod
        self._uses = uses
        self._joins = joins
        self._starts = starts
        self._target = target
        self._builder = relax.BlockBuilder(mod)
        self._params: dict[Placement, Var] = {}
        self._copies: dict[tuple[tuple[int, ...], str], GlobalVar] = {}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the tensors after the new parameters lie."""
        return tuple(self._params)

    def run(self) -> tvm.IRModule:
        """Return the new module."""
        main = self._mod["main"]
        kept: list[Any] = []
        for step, binding in enumerate(bindings(main)):
            if step in self._joins.at:
                kept += self._copy_parts(self._joins.at[step])
            elif binding.var not in self._uses.names and self._uses.root(binding.var) is None:
                kept.append(self._rewrite(binding))
        result = self._over_params(main.body.body)
        if not isinstance(result, Var):
            outputs = Var("outputs", main.ret_ty)
            kept.append(relax.VarBinding(outputs, result))
            result = outputs
        body = relax.SeqExpr([relax.BindingBlock(kept)], result)
        params = [*main.params, *self._params.values()]
        # The loader has checked the inputs and makes the rest: the machine need not check any.
        func = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
        return self._module(func.with_attr("num_input", 0), kept)

    def _module(self, main: relax.Function, kept: list[Any]) -> tvm.IRModule:
        """Return the module with ``main``, without kernels that nothing calls any more."""
        called = {binding.value.op for binding in kept if isinstance(binding.value, Call)}
        functions = {
            variable: function
            for variable, function in self._builder.get().functions_items()
            if variable in called or not isinstance(function, tirx.PrimFunc)
        }
        functions[self._mod.get_global_var("main")] = main
        return tvm.IRModule(functions, attrs=self._mod.attrs)

    def _over_params(self, expr: Expr) -> Expr:
        return _replace(self._uses.resolve(expr), self._param)

    def _rewrite(self, binding: Any) -> Any:
        if isinstance(binding, relax.VarBinding):
            return relax.VarBinding(binding.var, self._over_params(binding.value))
        return relax.MatchCast(binding.var, self._over_params(binding.value), binding.ty)

    def _param(self, var: Var) -> Var:
        """Return the parameter that holds the tensor ``var``, or ``var`` if it is not placed."""
        root = self._uses.root(var)
        if root is None:
            return var
        outermost, offset = self._joins.outermost(root)
        return self._view(var, self._starts[outermost] + offset)

    def _view(self, var: Var, offset: int) -> Var:
        shape, dtype = static_shape(var), dtype_of(var)
        assert shape is not None
        placement = Placement(offset, dtype, shape)
        if placement not in self._params:
            name = f"activation_{len(self._params)}"
            self._params[placement] = Var(name, relax.TensorType(shape, dtype))
        return self._params[placement]

    def _copy_parts(self, join: _Join) -> Iterator[Any]:
        """Yield the calls that copy what is not made in its place."""
        outermost, offset = self._joins.outermost(join.output)
        start = self._starts[outermost] + offset
        for part, distance, copied in zip(join.parts, join.offsets, join.copied, strict=True):
            if copied:
                arguments = [self._param(part), self._view(part, start + distance)]
                call = Call(self._copy_kernel(part), arguments)
                yield relax.VarBinding(Var("_", relax.TupleType([])), call)

    def _copy_kernel(self, part: Var) -> GlobalVar:
        shape, dtype = static_shape(part), dtype_of(part)
        assert shape is not None
        if (shape, dtype) not in self._copies:
            kernel = lower_concat([shape], 0, self._target, Format(NCHW, dtype))
            self._copies[shape, dtype] = self._builder.add_func(kernel, "copy")
        return self._copies[shape, dtype]


def _replace(expr: Expr, variable: Callable[[Var], Expr]) -> Expr:
    """Return ``expr`` with its variables replaced, and the fields of known tuples taken out."""
    if isinstance(expr, Var):
        return variable(expr)
    if isinstance(expr, Call):
        args = [_replace(arg, variable) for arg in expr.args]
        return Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_replace(item, variable) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        value = _replace(expr.tuple_value, variable)
        known = isinstance(value, relax.Tuple)
        return value.fields[expr.index] if known else relax.TupleGetItem(value, expr.index)
    return expr
