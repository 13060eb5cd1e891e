"""Calls that need no kernel: concatenations, slices, and selections of conditional results."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, Var

from neocpu.ir.expressions import Expr
from neocpu.ir.uses import bindings, used_vars
from neocpu.lowering.memory.arena import Span
from neocpu.lowering.memory.tensor_uses import (
    Uses,
    bytes_in,
    is_kernel_call,
    is_placeable,
    is_reshape,
)
from neocpu.schedules.operators.concat import END_TO_END, VIEW
from neocpu.schedules.operators.select import SELECT


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition, and the value that it must have for a call to be made."""

    condition: Hashable  # a tensor with one bool
    value: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A call: the tensors that it reads and writes. No tensor is written twice."""

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    selects: bool = False  # whether it is ``select(condition, then, other)``, which reads one side


_Guards: TypeAlias = frozenset[Guard]


def guards_of(steps: Sequence[Step], kept: Iterable[Hashable]) -> list[tuple[Guard, ...]]:
    """Return the conditions under which each call has to be made.

    A call is skipped if its results are only needed for sides of selections that are not chosen,
    and the conditions are known before it. `kept` are the tensors that are read after all calls. If
    a call makes the condition of a guard, its own guards are in the same tuple before that guard,
    so that no run reads a condition that was not computed.
    """
    made = {tensor: number for number, step in enumerate(steps) for tensor in step.writes}
    places: dict[Hashable, int] = {}
    for step in steps:
        for tensor in step.reads:
            places.setdefault(tensor, len(places))
    needed: dict[Hashable, _Guards] = {tensor: frozenset() for tensor in kept}
    result: list[tuple[Guard, ...]] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        read = [needed[tensor] for tensor in step.writes if tensor in needed]
        wanted: _Guards = frozenset.intersection(*read) if read else frozenset()
        known = [guard for guard in wanted if made.get(guard.condition, -1) < number]
        known.sort(key=lambda g: (made.get(g.condition, -1), places[g.condition], g.value))
        result.append(tuple(known))
        for place, tensor in enumerate(step.reads):
            own = frozenset(known)
            if step.selects and place > 0:
                own |= {Guard(step.reads[0], place == 1)}
            needed[tensor] = needed[tensor] & own if tensor in needed else own
    return result[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class Guards:
    """The conditions under which the call of each binding is made."""

    of_steps: list[tuple[Guard, ...]]  # their conditions are allocations or parameters
    makers: dict[Var, int]  # the binding whose call writes an allocation

    def made_under(self, root: Var | None, guard: Guard) -> bool:
        """Whether an allocation is written only if ``guard`` holds."""
        return root in self.makers and guard in self.of_steps[self.makers[root]]


def find_guards(
    main: relax.Function, mod: tvm.IRModule, uses: Uses, written: Mapping[str, int]
) -> Guards:
    def roots(exprs: Iterable[Expr]) -> tuple[Var, ...]:
        return tuple(uses.roots.get(var, var) for expr in exprs for var in used_vars(expr))

    steps: list[Step] = []
    makers: dict[Var, int] = {}
    for number, binding in enumerate(bindings(main)):
        value = uses.resolve(binding.value)
        if is_kernel_call(value, mod):
            count = len(value.args) - written.get(value.op.name_hint, 1)
            made = roots(value.args[count:])
            steps.append(Step(roots(value.args[:count]), made, _has(mod, value, SELECT)))
            makers |= dict.fromkeys(made, number)
        elif isinstance(value, Call) and not is_reshape(value) and not is_placeable(value):
            # It may use a tensor in any way, and always does.
            steps.append(Step(roots([value]), (binding.var,)))
        else:
            steps.append(Step((), ()))
    kept = roots([uses.resolve(main.body.body)])
    unknown = {var for step in steps for var in step.writes if var not in makers}
    return Guards(guards_of(steps, {*kept, *unknown}), makers)


def _has(mod: tvm.IRModule, call: Call, attribute: str) -> bool:
    return attribute in (mod[call.op].attrs or {})


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a tensor."""

    var: Var
    offset: int  # the byte at which it begins
    guards: tuple[Guard, ...]  # the conditions under which the part is needed
    side: Guard | None = None  # the guard under which a selection chooses this part


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A concatenation or a selection without a kernel."""

    output: Var
    copied: tuple[Part, ...]  # those that no kernel can write to their places


@dataclass(frozen=True, slots=True, eq=False)
class Joins:
    """Joins and slices without a kernel."""

    at: dict[int, Join]  # those that copy some of their parts, by binding
    inside: dict[Var, tuple[Var, int]]  # the tensor that each lies in, and the first byte there
    slices: set[int]  # the bindings that are slices

    def made_under(self, root: Var | None, guard: Guard, guards: Guards) -> bool:
        """Whether a tensor and all parts of it are written only if ``guard`` holds."""
        parts = (part for part, (whole, _) in self.inside.items() if whole is root)
        return guards.made_under(root, guard) and all(
            self.made_under(part, guard, guards) for part in parts
        )

    def outermost(self, root: Var) -> tuple[Var, int]:
        """Return the outermost tensor that ``root`` is a part of, and the first byte there."""
        offset = 0
        while root in self.inside:
            root, distance = self.inside[root]
            offset += distance
        return root, offset


def find_joins(main: relax.Function, mod: tvm.IRModule, uses: Uses, guards: Guards) -> Joins:
    """Put every tensor into the first join that it is a part of, if it can be written there.

    A part of a selection can be written there if it is computed only when it is selected. A tensor
    that a loop carries to its next step stays outside: the kernel that writes it may read the
    tensor that contains it. A slice lies inside its source, and so cannot be part of a join.
    """
    joins = Joins({}, {}, set())
    for step, binding in enumerate(bindings(main)):
        value = uses.resolve(binding.value)
        if not is_kernel_call(value, mod):
            continue
        whole, own = uses.root(value.args[-1]), guards.of_steps[step]
        if whole is None:
            continue
        if _has(mod, value, SELECT):
            parts = _sides(value, own, uses)
        elif _has(mod, value, END_TO_END):
            parts = _end_to_end(value, own)
        elif _has(mod, value, VIEW):
            source = uses.root(value.args[0])
            if source is not None:
                joins.inside[whole] = (source, int(mod[value.op].attrs[VIEW]))
                joins.slices.add(step)
            continue
        else:
            continue
        copied = []
        for part in parts:
            root = uses.root(part.var)
            fits = part.side is None or joins.made_under(root, part.side, guards)
            fits = fits and root not in uses.carried
            copied.append(root is None or root in joins.inside or not fits)
            if not copied[-1]:
                joins.inside[root] = (whole, part.offset)
        if not all(copied):
            pairs = zip(parts, copied, strict=True)
            joins.at[step] = Join(whole, tuple(part for part, is_copied in pairs if is_copied))
    return joins


def _end_to_end(call: Call, guards: tuple[Guard, ...]) -> tuple[Part, ...]:
    parts = call.args[:-1]
    sizes = [bytes_in(part) for part in parts]
    return tuple(Part(part, sum(sizes[:i]), guards) for i, part in enumerate(parts))


def _sides(call: Call, guards: tuple[Guard, ...], uses: Uses) -> tuple[Part, ...]:
    condition, *pair, _ = call.args
    sides = [Guard(uses.roots.get(condition, condition), value) for value in (True, False)]
    return tuple(
        Part(part, 0, guards if side in guards else (*guards, side), side)
        for part, side in zip(pair, sides, strict=True)
    )


def busy_spans(uses: Uses, joins: Joins) -> Iterator[tuple[Var, Span]]:
    """Yield the outermost tensor and the bytes in it that each kernel writes."""
    joined = {join.output for join in joins.at.values()}
    for root, first in uses.first.items():
        if root not in joined and root not in uses.shared:
            outermost, offset = joins.outermost(root)
            yield outermost, Span(offset, bytes_in(root), first, _last_use(root, uses, joins))
    for step, join in joins.at.items():
        outermost, start = joins.outermost(join.output)
        last = _last_use(join.output, uses, joins)
        for part in join.copied:
            yield outermost, Span(start + part.offset, bytes_in(part.var), step, last)


def _last_use(root: Var, uses: Uses, joins: Joins) -> int:
    last = uses.last[root]
    while root in joins.inside:
        root, _ = joins.inside[root]
        last = max(last, uses.last[root])
    return last
