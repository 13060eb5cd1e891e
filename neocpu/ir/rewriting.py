"""A walk over a Relax function that applies a rule to each of its calls.

A *rule* is a function that looks at one call and returns its replacement, or ``None`` when it does
not apply. `rewrite_function` walks the function once in program order, keeps the definitions and
use counts that rules ask for, substitutes replacements and removes what nothing uses any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.ir.expressions import Expr
from neocpu.ir.uses import consumers, count_uses, definitions

#: The most rules that are applied within rules. Python's stack is full at a hundred and fifty.
MOST_NESTED = 100


class Rewrite:
    """The function being rewritten: a rule may ask questions about it, and add bindings to it."""

    def __init__(self, func: relax.Function, rule: Rule) -> None:
        self._rule = rule
        self._builder: Any = None
        self._definitions: dict[Var, Expr] = {}
        self._variables: dict[Expr, Var] = {}
        self._func = func
        self.changed = False
        self._nested = 0
        #: The variable whose value is being rewritten.
        self.current: Var | None = None
        #: The expressions that rules which compare expressions have met so far, by the rules' keys.
        self.met: dict[Hashable, Expr] = {}

    @cached_property
    def _uses(self) -> dict[Var, int]:
        return count_uses(self._func)

    @cached_property
    def _readers(self) -> dict[Var, list[tuple[Var, Expr]]]:
        values = definitions(self._func)
        return {
            var: [(reader, values[reader]) for reader in readers]
            for var, readers in consumers(self._func).items()
        }

    def readers(self, var: Var | None) -> list[tuple[Var, Expr]]:
        """Return the variables that read one, with their values, as they were before this walk."""
        return self._readers.get(var, [])

    @cached_property
    def reads_all(self) -> bool:
        """Whether any binding may read all earlier ones, as they are in one dataflow block."""
        return len(self._func.body.blocks) == 1

    def definition(self, expr: Expr) -> Expr:
        """Return the rewritten value of a bound variable; any other expression unchanged."""
        return self._definitions.get(expr, expr) if isinstance(expr, Var) else expr

    @property
    def definitions(self) -> Mapping[Var, Expr]:
        """The values of the variables that this walk has passed."""
        return self._definitions

    def sole_definition(self, expr: Expr) -> Expr | None:
        """Return the `definition` of a bound variable that is read only once; else None."""
        if not isinstance(expr, Var) or self._uses.get(expr, 1) != 1:
            return None
        return self._definitions.get(expr)

    def variable(self, value: Expr) -> Var | None:
        """Return the variable bound to ``value``, an expression that this walk has kept."""
        return self._variables.get(value)

    def emit(self, expr: Expr) -> Expr:
        """Bind ``expr`` after applying the rule to it, and return the variable (or leaf).

        The rule may emit expressions itself, to which it is applied in turn, and so on. Beyond
        `MOST_NESTED` levels they are left to the next walk, because a slice may move before any
        number of operators.
        """
        expr = self._builder.normalize(expr)
        if self._nested < MOST_NESTED:
            self._nested += 1
            expr = self.apply(expr)
            self._nested -= 1
        if _is_leaf(expr):
            return expr
        var = self._builder.emit(expr)
        self._bind(var, expr)
        return var

    def _bind(self, var: Var, value: Expr) -> None:
        self._definitions[var] = value
        self._variables[value] = var

    def apply(self, expr: Expr) -> Expr:
        """Apply the rule to ``expr`` until it no longer applies."""
        while isinstance(expr, Call | relax.TupleGetItem):
            replacement = self._rule(expr, self)
            if replacement is None:
                break
            self.changed = True
            expr = self._builder.normalize(replacement)
        return expr


Rule: TypeAlias = Callable[[Expr, Rewrite], Expr | None]


def _is_leaf(expr: Expr) -> bool:
    return isinstance(expr, Var | GenericConst | relax.ShapeExpr)


@relax.expr_functor.mutator
class _RuleMutator(relax.PyExprMutator):  # type: ignore[misc]
    """Visits the bindings in order and hands each call and tuple access to the rule."""

    def __init__(self, rewrite: Rewrite) -> None:
        super().__init__()
        self._rewrite = rewrite
        self._rewrite._builder = self.builder_
        self._replaced: dict[Var, Expr] = {}
        self._retyped = False

    def visit_var_(self, op: Var) -> Expr:
        return self._replaced.get(op, op)

    def visit_dataflow_var_(self, op: Var) -> Expr:
        return self._replaced.get(op, op)

    def visit_call_(self, op: Call) -> Expr:
        if self._retyped:
            return self._rewrite.apply(self.builder_.normalize(super().visit_call_(op)))
        args = [self.visit_expr(arg) for arg in op.args]
        if not all(map(Call.same_as, args, op.args)):
            # The types of the arguments are unchanged, so inference would find the same type.
            op = Call(op.op, args, op.attrs, op.ty_args, ret_ty=op.ty)
        return self._rewrite.apply(op)

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> Expr:
        return self._rewrite.apply(self.builder_.normalize(super().visit_tuple_getitem_(op)))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = self._rewrite.current = binding.var
        value = self.visit_expr(binding.value)
        if _is_leaf(value) and isinstance(var, relax.DataflowVar):
            self._replaced[var] = value
            # Types of tensors may depend on this shape, so they have to be inferred again.
            self._retyped |= isinstance(value, relax.ShapeExpr)
            if isinstance(value, Var):
                uses = self._rewrite._uses
                uses[value] = uses.get(value, 0) + uses.get(var, 0)
            return
        typed = var
        if not value.same_as(binding.value) and not tvm_ffi.structural_equal(value.ty, var.ty):
            typed = self.with_type(var, value.ty)
            self._replaced[var] = typed
            self._retyped = True
            self._rewrite._uses[typed] = self._rewrite._uses.get(var, 0)
        self.builder_.emit_normalized(relax.VarBinding(typed, value))
        self._rewrite._bind(typed, value)


def rewrite_function(func: relax.Function, rule: Rule) -> relax.Function:
    """Apply ``rule`` to every call and tuple access of ``func``, in program order, once.

    ``func`` is in A-normal form, which every Relax pass returns. ``rule(expr, rewrite)`` returns
    the replacement, or ``None`` if it does not apply. The arguments of ``expr`` are already
    rewritten. A replacement is offered to the rule again, and so is everything it emits.

    The result is ``func`` itself if the rule never applied, else a new function without dead
    bindings.
    """
    rewrite = Rewrite(func, rule)
    rewritten = _RuleMutator(rewrite).visit_expr(func)
    return relax.analysis.remove_all_unused(rewritten) if rewrite.changed else func


def summed(terms: Sequence[Expr], rewrite: Rewrite) -> Expr:
    """Return the sum of one or more terms, added up in order; all but the last sum is bound."""
    total, *rest = terms
    for number, term in enumerate(rest, 1):
        total = relax.op.add(total, term)
        if number < len(rest):
            total = rewrite.emit(total)
    return total
