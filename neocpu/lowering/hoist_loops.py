"""Hoist constant work out of loops, and copy the states that a step would overwrite too early.

The pass runs when every operator is a kernel:

- Calls that do not depend on the step, such as transforms of outer tensors, move before the loop.
- Marks of values from outside the loop, which keep kernels of a step from computing them, go.
- A state that becomes another one, or is returned as a row, is copied. The end of a step writes
  states, and kernels may not write the tensors that they read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar, Var
from tvm.s_tir.stmt import SBlockRealize

from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.uses import bindings, used_vars
from neocpu.lowering.memory.tensor_uses import mark_of, replace_vars
from neocpu.schedules.operators.concat import VIEW
from neocpu.schedules.recurrent.counted_loop import (
    LOOP_BEGIN,
    LOOP_END,
    LOOP_OUTER,
    Tensor,
    lower_copy,
)


def hoist_loops(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module of kernels whose loops repeat no call that does not depend on the step."""
    if not any(mark_of(function, LOOP_BEGIN) is not None for function in mod.functions.values()):
        return mod
    return _Hoisting(mod).run()


class _Hoisting:
    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._builder = relax.BlockBuilder(mod)
        self._copies: set[GlobalVar] = set()

    def run(self) -> tvm.IRModule:
        main = self._mod["main"]
        made = self._copied(self._without_marks(bindings(main)))
        for name in [name for each in made if (name := self._mark(each, LOOP_BEGIN)) is not None]:
            made = self._hoisted(made, name)
        body = relax.SeqExpr([relax.DataflowBlock(made)], main.body.body)
        functions = dict(self._builder.get().functions_items())
        whole = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
        functions[self._mod.get_global_var("main")] = whole
        return relax.transform.Normalize()(tvm.IRModule(functions, attrs=self._mod.attrs))

    def _mark(self, binding: Any, mark: str) -> Any:
        value = binding.value
        if not is_op(value, "relax.call_tir") or value.args[0] in self._copies:
            return None
        return mark_of(self._mod[value.args[0]], mark)

    def _without_marks(self, old: Iterable[Any]) -> list[Any]:
        made: list[Any] = []
        for each in old:
            if self._mark(each, LOOP_OUTER):
                (outer,) = each.value.args[1].fields
                each = relax.VarBinding(each.var, relax.op.reshape(outer, static_shape(each.var)))
            made.append(each)
        return made

    def _copied(self, old: Iterable[Any]) -> list[Any]:
        made: list[Any] = []
        states: set[Var] = set()  # and possible views of states
        tuples: set[Var] = set()

        def kept(var: Var) -> Expr:
            if var not in states:
                return var
            made.append(self._copy(var))
            return made[-1].var

        for each in old:
            value = each.value
            if self._mark(each, LOOP_BEGIN) is not None:
                tuples.add(each.var)
            elif isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
                if value.index > 0:
                    states.add(each.var)
            elif self._mark(each, LOOP_END) is not None:
                each = relax.VarBinding(each.var, replace_vars(value, kept))
            elif self._is_view(value) and any(var in states for var in used_vars(value)):
                states.add(each.var)
            made.append(each)
        return made

    def _copy(self, state: Var) -> Any:
        tensor = Tensor(dtype_of(state), static_shape(state) or ())
        kernel = self._builder.add_func(lower_copy(tensor), "copy")
        self._copies.add(kernel)
        call = relax.call_tir(kernel, relax.Tuple([state]), state.ty)
        return relax.VarBinding(relax.DataflowVar("copied", state.ty), call)

    def _is_view(self, value: Expr) -> bool:
        if isinstance(value, Var) or is_op(value, "relax.reshape"):
            return True
        if not is_op(value, "relax.call_tir") or value.args[0] in self._copies:
            return False
        kernel = self._mod[value.args[0]]
        if mark_of(kernel, VIEW) is not None:
            return True
        return isinstance(kernel.body, SBlockRealize) and relax.analysis.has_reshape_pattern(kernel)

    def _hoisted(self, old: list[Any], name: str) -> list[Any]:
        """Return bindings in which those that do not depend on a loop's step come before the loop.

        An inner loop's begin may be among these. It moves back when that loop is hoisted, as all
        that does not depend on the inner loop moves before it. So inner loops come last.
        """
        first = next(i for i, each in enumerate(old) if self._mark(each, LOOP_BEGIN) == name)
        last = next(i for i, each in enumerate(old) if self._mark(each, LOOP_END) == name)
        inner = {old[first].var}
        before, within = [], []
        for each in old[first + 1 : last]:
            if inner.isdisjoint(used_vars(each.value)):
                before.append(each)
            else:
                inner.add(each.var)
                within.append(each)
        return [*old[:first], *before, old[first], *within, *old[last:]]
