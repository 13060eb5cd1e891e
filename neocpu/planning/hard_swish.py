"""Hard swish, which models write as several operators: a value times a clipped line through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm.ir import Var

from neocpu.relax_utils import Expr, constant_value, is_op, static_shape
from neocpu.schedules.vocabulary.workload import EpilogueOp


@dataclass(frozen=True, slots=True)
class _Line:
    """``clip(x * scale + shift, low, high)``; not clipped yet, without the last two."""

    scale: float = 1.0
    shift: float = 0.0
    bounds: tuple[float, float] | None = None

    def times(self, factor: float) -> _Line | None:
        """Return the line multiplied; None by what would turn its bounds around."""
        if self.bounds is not None and not factor > 0:
            return None
        low, high = self.bounds or (0.0, 0.0)
        bounds = None if self.bounds is None else (low * factor, high * factor)
        return _Line(self.scale * factor, self.shift * factor, bounds)

    def plus(self, term: float) -> _Line | None:
        """Return the line moved; None where it is clipped."""
        return replace(self, shift=self.shift + term) if self.bounds is None else None

    def clipped(self, low: float, high: float) -> _Line | None:
        """Return the line clipped; None if it is."""
        return replace(self, bounds=(low, high)) if self.bounds is None else None


def match_hard_swish(
    value: Var, readers: Mapping[Var, Sequence[Var]], definitions: Mapping[Var, Expr]
) -> tuple[EpilogueOp, list[Var]] | None:
    """Return the step that two operators, which alone read ``value``, are the ends of.

    With it, the variables that it makes: ``value * clip(value * scale + shift, low, high)``, times
    a constant, is the last.
    """
    users = readers.get(value, ())
    if len(users) != 2 or users[0].same_as(users[1]):
        return None
    for start, product in (users, reversed(users)):
        line, at, inner = _Line(), value, []
        step: Var | None = start
        while step is not None and not step.same_as(product):
            longer = _longer(line, definitions[step], at)
            if longer is None:
                break
            line, at = longer, step
            inner.append(step)
            step = _only(readers.get(at, ()))
        else:
            if step is not None and line.bounds and _multiplies(definitions[product], value, at):
                return _scaled(line, product, inner, readers, definitions)
    return None


def _only(users: Sequence[Var]) -> Var | None:
    return users[0] if len(users) == 1 else None


def _longer(line: _Line, call: Expr, at: Var) -> _Line | None:
    """Return the line that ``call`` makes of one, which is ``at``; None if it makes none."""
    if static_shape(call) != static_shape(at):
        return None
    if is_op(call, "relax.clip"):
        low, high = (float(bound.value) for bound in call.args[1:])
        return line.clipped(low, high)
    if is_op(call, "relax.nn.relu"):
        return None
    number = _number(call, at)
    if number is None:
        return None
    return line.times(number) if is_op(call, "relax.multiply") else line.plus(number)


def _number(call: Expr, at: Var) -> float | None:
    """Return the constant that ``call`` multiplies ``at`` by, or adds to it, for all elements."""
    if not is_op(call, "relax.multiply", "relax.add") or not call.args[0].same_as(at):
        return None
    constant = constant_value(call.args[1])
    return float(constant.item()) if constant is not None and constant.size == 1 else None


def _multiplies(call: Expr, value: Var, line: Var) -> bool:
    if not is_op(call, "relax.multiply") or static_shape(call) != static_shape(value):
        return False
    first, second = call.args
    either = (
        (first.same_as(value), second.same_as(line)),
        (second.same_as(value), first.same_as(line)),
    )
    return any(map(all, either))


def _scaled(
    line: _Line,
    product: Var,
    inner: list[Var],
    readers: Mapping[Var, Sequence[Var]],
    definitions: Mapping[Var, Expr],
) -> tuple[EpilogueOp, list[Var]]:
    """Return the step, with the product's only reader in it if that multiplies by a constant."""
    last = _only(readers.get(product, ()))
    scaled = None
    if last is not None and is_op(definitions[last], "relax.multiply"):
        number = _number(definitions[last], product)
        same = static_shape(last) == static_shape(product)
        scaled = line.times(number) if number is not None and same else None
    chain = [*inner, product, *([last] if scaled is not None and last is not None else [])]
    line = scaled or line
    assert line.bounds is not None
    return EpilogueOp("hard_swish", (line.scale, line.shift, *line.bounds)), chain
