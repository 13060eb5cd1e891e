"""Give every tensor between two kernels a fixed place in one arena.

TVM's own planning leaves two calls per kernel, which make a tensor object and name it, and take as
long as a small kernel; here tensors become parameters of ``main`` that are made once. A
concatenation whose parts lie end to end needs no kernel: those of its parts write there. A slice of
contiguous elements is read where it lies. A selection needs no kernel if only one side is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.ir.expressions import Expr, dtype_of, known_shape, static_shape
from neocpu.ir.uses import bindings, used_vars
from neocpu.lowering.memory.arena import Span, place, place_separately
from neocpu.lowering.memory.joins import (
    Guard,
    Guards,
    Join,
    Joins,
    busy_spans,
    find_guards,
    find_joins,
)
from neocpu.lowering.memory.tensor_uses import Loop, Uses, read_uses, rebound, replace_vars
from neocpu.lowering.values import StoredPlace
from neocpu.runtime.header_parts import Launch, Placement
from neocpu.schedules.operators.concat import lower_concat
from neocpu.schedules.vocabulary.layout import NCHW, Format
from neocpu.schedules.vocabulary.target import CpuTarget

Steps: TypeAlias = tuple[int, int]  # the first and the last of several neighbouring bindings


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoopCalls:
    """Calls that are repeated."""

    first: int
    end: int  # the number of the call after the last
    limit: int  # the largest number of steps
    number: Var  # the parameter of ``main`` that holds the number of the step
    count: Var | None  # the parameter that holds the number of steps
    condition: Var | None  # the parameter that says whether there is another step


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlannedModule:
    """A module whose ``main`` takes, after other parameters, the tensors between its kernels."""

    mod: tvm.IRModule
    activations: tuple[Placement, ...]  # places of these parameters, which may overlap
    arena_bytes: int
    starts: tuple[int, ...]  # the first byte of each tensor that lies in no other, in order
    guards: tuple[tuple[Guard, ...], ...]  # those of each call; their conditions are parameters
    loops: tuple[LoopCalls, ...]  # each within another one or after it
    launches: tuple[Launch, ...]  # the calls that are launched jointly, in order
    places: Mapping[str, StoredPlace]  # those of the variables in ``names``


def plan_memory(
    mod: tvm.IRModule,
    target: CpuTarget,
    written: Mapping[str, int],
    names: Collection[str] = (),
    launches: Sequence[Steps] = (),
    *,
    separate: bool = False,
) -> PlannedModule:
    """Replace the allocations of ``main`` by parameters, and concatenations by places.

    `mod` is the result of ``relax.transform.CallTIRRewrite``: kernels take their results as
    arguments. An allocation stays if its size is not static, or if something other than a kernel
    reads it. The `target` copies parts of concatenations that cannot be made in their places.
    `written` is the number of tensors that a kernel writes, if not one. The places of `names` are
    returned, and `launches` has the bindings that call the kernels of each joint launch, in order.
    `separate`: no two tensors share memory at different times, so that tensors of any size are
    placed in the same order.
    """
    layout = lay_out(mod, written, launches, separate=separate)
    emitter = _Emitter(mod, layout, target)
    planned = emitter.run()
    return PlannedModule(
        mod=planned,
        activations=emitter.placements,
        arena_bytes=layout.size,
        starts=tuple(sorted(layout.starts.values())),
        guards=tuple(emitter.guards),
        loops=tuple(emitter.loops),
        launches=tuple(map(emitter.calls_of, launches)),
        places=emitter.places(names),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLayout:
    """The places of a module's tensors."""

    uses: Uses
    guards: Guards
    joins: Joins
    size: int  # that of the arena in bytes
    starts: dict[Var, int]  # the first byte of each tensor that lies in no other


def lay_out(
    mod: tvm.IRModule,
    written: Mapping[str, int],
    launches: Sequence[Steps] = (),
    *,
    separate: bool = False,
) -> MemoryLayout:
    """Return tensors' places; what a call of a launch writes is in use from its first call on."""
    main = mod["main"]
    uses = read_uses(main, mod)
    guards = find_guards(main, mod, uses, written)
    joins = find_joins(main, mod, uses, guards)
    groups: dict[Var, list[Span]] = {}
    firsts = {step: first for first, last in launches for step in range(first, last + 1)}
    for root, span in busy_spans(uses, joins):
        first = firsts.get(span.first, span.first)
        groups.setdefault(root, []).append(replace(span, first=first))
    spans = [tuple(each) for each in groups.values()]
    arena = place_separately(spans) if separate else place(spans)
    starts = dict(zip(groups, arena.starts, strict=True))
    return MemoryLayout(uses, guards, joins, arena.size, starts)


class _Emitter:
    """Rewrites ``main`` without allocations, aliases and joins, with parameters for tensors."""

    def __init__(self, mod: tvm.IRModule, layout: MemoryLayout, target: CpuTarget) -> None:
        self._mod = mod
        self._uses = layout.uses
        self._joins = layout.joins
        self._starts = layout.starts
        self._target = target
        self._guards = layout.guards
        self.guards: list[tuple[Guard, ...]] = []
        self.loops: list[LoopCalls] = []
        self._made: list[int] = []  # the number of calls up to each binding
        self._builder = relax.BlockBuilder(mod)
        # Results, and the tensors in them, have parameters of their own, even if another tensor has
        # the same place before. So a run may write them directly to the caller's memory.
        result = layout.uses.resolve(mod["main"].body.body)
        self._returned = {self._outermost(var) for var in used_vars(result)}
        self._params: dict[tuple[Placement, bool], Var] = {}
        self._copies: dict[tuple[tuple[int, ...], str], GlobalVar] = {}

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(placement for placement, _ in self._params)

    def run(self) -> tvm.IRModule:
        main = self._mod["main"]
        kept: list[Any] = []
        begun: dict[int, int] = {}  # the first call of each loop, by the binding that ends it
        begins = {loop.begin: loop for loop in self._uses.loops}
        ends = {loop.end: loop for loop in self._uses.loops}
        for step, binding in enumerate(bindings(main)):
            if step in self._joins.at:
                kept += self._copy_parts(self._joins.at[step])
            elif step in self._joins.slices:
                pass
            elif binding.var not in self._uses.names and self._uses.root(binding.var) is None:
                called = isinstance(binding.value, Call) and isinstance(binding.value.op, GlobalVar)
                if not called or self._is_made(self._guards.of_steps[step]):
                    kept.append(rebound(binding, binding.var, self._over_params(binding.value)))
                    if step in begins:
                        begun[begins[step].end] = len(self.guards)
                    elif step in begun:
                        self._end_loop(ends[step], begun[step])
            self._made.append(len(self.guards))
        result = self._over_params(main.body.body)
        if not isinstance(result, Var):
            outputs = Var("outputs", main.ret_ty)
            kept.append(relax.VarBinding(outputs, result))
            result = outputs
        body = relax.SeqExpr([relax.BindingBlock(kept)], result)
        params = [*main.params, *self._params.values()]
        # The loader checks the inputs and makes the other arguments, so that none is checked here.
        func = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
        return self._module(func.with_attr("num_input", 0), kept)

    def places(self, names: Collection[str]) -> dict[str, StoredPlace]:
        """Return the places of variables, after `run`; for a name of several, that of the last."""
        found: dict[str, StoredPlace] = {}
        for binding in bindings(self._mod["main"]) if names else ():
            root = self._uses.root(self._uses.resolve(binding.var))
            shape = None if root is None else static_shape(root)
            if str(binding.var.name) in names and root in self._guards.makers and shape is not None:
                place = Placement(self._start(root), dtype_of(root), shape)
                calls = self._made[self._guards.makers[root]]
                found[str(binding.var.name)] = StoredPlace(calls, place)
        return found

    def calls_of(self, steps: Steps) -> Launch:
        first, last = steps
        count = last - first + 1
        return self._made[last] - count, count

    def _end_loop(self, loop: Loop, first: int) -> None:
        count, condition = (
            None if each is None else self._over_params(each)
            for each in (loop.count, loop.condition)
        )
        calls = LoopCalls(
            first=first,
            end=len(self.guards),
            limit=loop.limit,
            number=self._param(loop.number),
            count=count,
            condition=condition,
        )
        self.loops.append(calls)

    def _module(self, main: relax.Function, kept: list[Any]) -> tvm.IRModule:
        called = {binding.value.op for binding in kept if isinstance(binding.value, Call)}
        functions = {
            variable: function
            for variable, function in self._builder.get().functions_items()
            if variable in called or not isinstance(function, tirx.PrimFunc)
        }
        functions[self._mod.get_global_var("main")] = main
        return tvm.IRModule(functions, attrs=self._mod.attrs)

    def _over_params(self, expr: Expr) -> Expr:
        return replace_vars(self._uses.resolve(expr), self._param)

    def _param(self, var: Var) -> Var:
        root = self._uses.root(var)
        if root is None:
            return var
        return self._view(var, self._start(root), self._outermost(var) in self._returned)

    def _start(self, root: Var) -> int:
        outermost, offset = self._joins.outermost(root)
        return self._starts[outermost] + offset

    def _outermost(self, var: Var) -> Var | None:
        root = self._uses.root(var)
        return None if root is None else self._joins.outermost(root)[0]

    def _view(self, var: Var, offset: int, returned: bool) -> Var:
        shape, dtype = known_shape(var), dtype_of(var)
        key = Placement(offset, dtype, shape), returned
        if key not in self._params:
            name = f"activation_{len(self._params)}"
            self._params[key] = Var(name, relax.TensorType(shape, dtype))
        return self._params[key]

    def _copy_parts(self, join: Join) -> Iterator[Any]:
        start, returned = self._start(join.output), self._outermost(join.output) in self._returned
        for part in join.copied:
            if self._is_made(part.guards):
                copied = self._view(part.var, start + part.offset, returned)
                arguments = [self._param(part.var), copied]
                call = Call(self._copy_kernel(part.var), arguments)
                yield relax.VarBinding(Var("_", relax.TupleType([])), call)

    def _is_made(self, guards: Sequence[Guard]) -> bool:
        """Note the guards of the next call; return False if no run could make it."""
        if len({guard.condition for guard in guards}) < len(guards):
            return False
        over = (replace(guard, condition=self._param(guard.condition)) for guard in guards)
        self.guards.append(tuple(over))
        return True

    def _copy_kernel(self, part: Var) -> GlobalVar:
        shape, dtype = known_shape(part), dtype_of(part)
        if (shape, dtype) not in self._copies:
            kernel = lower_concat([shape or (1,)], 0, self._target, Format(NCHW, dtype))
            self._copies[shape, dtype] = self._builder.add_func(kernel, "copy")
        return self._copies[shape, dtype]
