"""The types of rules, and a pass that applies them to a module and counts how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import groupby
from typing import Final

import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.ir.expressions import Expr, op_name
from neocpu.ir.rewriting import Rewrite, Rule, rewrite_function
from neocpu.ir.uses import bindings


def rewrite_where_it_applies(func: relax.Function, rule: Rule) -> relax.Function:
    """Return the result of `rewrite_function`, in a fraction of its time if no rule applies. `rule`
    remembers things from call to call only in the `Rewrite`. It may be called with two of these.
    """
    look = _Look(func, rule)
    if not look.finds():
        return func
    pending = [] if look.found is None else [look.found]

    def once_more(expr: Expr, rewrite: Rewrite) -> Expr | None:
        # Up to the first change, the second walk meets the same expressions as the first.
        if pending and look.current is not None and look.current.same_as(rewrite.current):
            return pending.pop()
        return rule(expr, rewrite)

    return rewrite_function(func, once_more)


class _WouldEmitError(Exception):
    """A rule would add a binding to a function that is only looked at."""


class _Look(Rewrite):
    """A walk that ends at the first change, at `current`."""

    found: Expr | None = None  # the replacement at `current`, if known yet

    def finds(self) -> bool:
        try:
            return any(map(self._changes, bindings(self._func)))
        except _WouldEmitError:
            return True

    def emit(self, expr: Expr) -> Expr:
        raise _WouldEmitError

    def _changes(self, binding: relax.Binding) -> bool:
        self.current, value = binding.var, binding.value
        if isinstance(value, Call | relax.TupleGetItem):
            self.found = self._rule(value, self)
            if self.found is not None:
                return True
        elif isinstance(value, Var | GenericConst | relax.ShapeExpr):
            if isinstance(binding.var, relax.DataflowVar):
                return True  # the value would replace the variable
        elif not isinstance(value, relax.Tuple):
            return True  # a walk goes into functions
        self._bind(binding.var, value)
        return False


TUPLE_ITEM: Final = "tuple item"  # the name by which a local rule asks for accesses of tuples


class Kind(StrEnum):
    """The purpose of a rule."""

    FOLDING = "folding"
    REDUNDANCY = "redundancy"
    REPLACEMENT = "replacement"
    REORDERING = "reordering"


@dataclass(frozen=True, slots=True, eq=False)
class GraphRule:
    """A named rule, which can be called with a module like a Relax pass."""

    name: str  # lower-case words joined by hyphens
    kind: Kind
    summary: str
    required: bool = False  # whether nothing compiles without it

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return ``mod`` with this rule alone applied once; itself if it does not apply."""
        return apply_rules(mod, [self])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LocalRule(GraphRule):
    """A rule that looks at one call, and at the values that it reads."""

    operators: tuple[str, ...] = ()  # those that it looks at, and `TUPLE_ITEM`; all if empty
    apply: Rule  # one of `rewrite_function` that remembers nothing from call to call


def local_rule(kind: Kind, *operators: str, required: bool = False) -> Callable[[Rule], LocalRule]:
    """Make a function a rule of its name, whose docstring begins with the rule's summary."""

    def made(apply: Rule) -> LocalRule:
        summary = " ".join((apply.__doc__ or "").partition("\n\n")[0].split())
        name = apply.__name__.replace("_", "-")
        return LocalRule(name, kind, summary, required, operators=operators, apply=apply)

    return made


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FunctionRule(GraphRule):
    """A rule that looks at a whole function."""

    rewrite: Callable[[relax.Function], relax.Function]  # itself if it does not apply


def apply_rules(
    mod: tvm.IRModule, rules: Sequence[GraphRule], fired: Counter[str] | None = None
) -> tvm.IRModule:
    """Apply rules to every function, once: local ones that follow each other in one walk.

    The first local rule that applies is taken. `fired` counts how often each was applied, a rule
    for whole functions once for each function. The result is ``mod`` itself if no rule applies.
    """
    counts = Counter[str]() if fired is None else fired
    changed = {}
    for var, func in mod.functions_items():
        after = _applied(func, rules, counts) if isinstance(func, relax.Function) else func
        if not after.same_as(func):
            changed[var] = after
    if not changed:
        return mod
    result = tvm.IRModule(mod.functions, attrs=mod.attrs)
    for var, func in changed.items():
        result[var] = func
    return result


def _applied(
    func: relax.Function, rules: Sequence[GraphRule], fired: Counter[str]
) -> relax.Function:
    for kind, following in groupby(rules, type):
        if kind is LocalRule:
            func = rewrite_where_it_applies(func, _first_of([*following], fired))
            continue
        for rule in following:
            assert isinstance(rule, FunctionRule)
            before = func
            func = rule.rewrite(func)
            if not func.same_as(before):
                fired[rule.name] += 1
    return func


def _first_of(rules: Sequence[GraphRule], fired: Counter[str]) -> Rule:
    """Return the rule that applies the first of some local rules that applies."""

    @cache
    def looking_at(name: str | None) -> tuple[LocalRule, ...]:
        local = (rule for rule in rules if isinstance(rule, LocalRule))
        return tuple(rule for rule in local if not rule.operators or name in rule.operators)

    def apply(expr: Expr, rewrite: Rewrite) -> Expr | None:
        name = TUPLE_ITEM if isinstance(expr, relax.TupleGetItem) else op_name(expr)
        for rule in looking_at(name):
            if (replacement := rule.apply(expr, rewrite)) is not None:
                fired[rule.name] += 1
                return replacement
        return None

    return apply
