"""Launch independent calls jointly if each is too small for all threads.

For that, calls of a block's branches become neighbours. All tensors of a launch are in use until it
ends. If memory would grow too much, the calls stay as they are.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm
from tvm import relax
from tvm.ir import Var

from neocpu.foundation.machine.machines import Machine
from neocpu.ir.expressions import Expr
from neocpu.ir.uses import bindings, used_vars
from neocpu.lowering.memory.joins import find_guards
from neocpu.lowering.memory.plan_memory import Steps, lay_out
from neocpu.lowering.memory.tensor_uses import (
    Uses,
    bytes_in,
    is_kernel_call,
    is_placeable,
    is_reshape,
    mark_of,
    read_uses,
)
from neocpu.runtime.header import MAX_LAUNCH
from neocpu.schedules.estimates.parallel_run import Piece, launch_seconds
from neocpu.schedules.operators.concat import END_TO_END, VIEW
from neocpu.schedules.operators.select import SELECT
from neocpu.schedules.recurrent.counted_loop import LOOP_BEGIN, LOOP_END
from neocpu.search.solver.launches import CallNode, plan_launches

WORTH: Final = 0.1
"""The share of the calls' own time that a joint launch has to save, since predictions err."""
LEAST: Final = 1e-6  # the seconds that a joint launch has to save
GROWTH: Final = 1.1  # the factor by which the arena may grow

_JOINS: Final = (END_TO_END, VIEW)
_FIXED: Final = (SELECT, LOOP_BEGIN, LOOP_END)

PieceOf: TypeAlias = Callable[[str], Piece | None]
"""A function that returns the piece of a kernel by its name; None if it is launched alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A module whose calls are in another order."""

    mod: tvm.IRModule
    launches: tuple[Steps, ...]  # the bindings of ``main`` that each launch has, in order


def launch_jointly(
    mod: tvm.IRModule,
    written: Mapping[str, int],
    piece: PieceOf,
    machine: Machine,
    threads: int,
    arena_bytes: int,
) -> Launched | None:
    """Return a module in which calls are launched jointly; None if no launch pays.

    `mod` is what `plan_memory` takes, and `arena_bytes` the size of its arena; `written` is the
    number of tensors that a kernel writes, if not one. `piece` returns the piece of a kernel by its
    name; None if it is launched alone. `machine` has the costs of starting and ending a launch.
    """
    calls = _Calls(mod, written, piece)
    # The time of each call by itself, and the part of it that could be saved: no thread computes.
    alone = [
        0.0 if one is None else launch_seconds([one], machine, threads) for one in calls.pieces
    ]
    spare = [
        0.0 if one is None else seconds - one.before - one.seconds / threads
        for seconds, one in zip(alone, calls.pieces, strict=True)
    ]

    def cost(step: Sequence[int]) -> float | None:
        separate = sum(alone[number] for number in step)
        worth = max(WORTH * separate, LEAST)
        if len(step) == 1 or sum(spare[number] for number in step) < worth:
            return separate if len(step) == 1 else None
        pieces = (calls.pieces[number] for number in step)
        joint = launch_seconds([one for one in pieces if one is not None], machine, threads)
        return joint if separate - joint >= worth else None

    stretches = plan_launches(calls.nodes, cost, MAX_LAUNCH, GROWTH)
    found = [i for i, steps in enumerate(stretches) if any(len(step) > 1 for step in steps)]

    def launched(chosen: Collection[int]) -> Launched:
        steps = [
            step
            for i, stretch in enumerate(stretches)
            for step in (stretch if i in chosen else _one_by_one(stretch))
        ]
        return calls.in_order(steps)

    def fits(chosen: Collection[int]) -> bool:
        tried = launched(chosen)
        return lay_out(tried.mod, written, tried.launches).size <= GROWTH * arena_bytes

    chosen = _fitting([], found, fits)
    return launched(chosen) if chosen else None


def _one_by_one(stretch: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    return [(number,) for number in sorted(itertools.chain.from_iterable(stretch))]


def _fitting(
    kept: list[int], more: list[int], fits: Callable[[Collection[int]], bool]
) -> list[int]:
    """Return ``kept`` and all of ``more`` if they fit; if not, those of each half that fit."""
    if not more or fits([*kept, *more]):
        return [*kept, *more]
    if len(more) == 1:
        return kept
    half = len(more) // 2
    return _fitting(_fitting(kept, more[:half], fits), more[half:], fits)


class _Calls:
    """The calls of ``main`` and the calls that each depends on.

    The arguments are those of `launch_jointly`; `pieces` has the piece of each call, None if it is
    never launched with others.
    """

    def __init__(self, mod: tvm.IRModule, written: Mapping[str, int], piece: PieceOf) -> None:
        self._mod, self._written, self._piece = mod, written, piece
        self._bindings = list(bindings(mod["main"]))
        self._uses = read_uses(mod["main"], mod)
        self._guards = find_guards(mod["main"], mod, self._uses, written)
        self._numbers: list[int] = []  # positions of the bindings that are calls
        self._names: dict[Var, int] = {}  # positions of the others, which stand for tensors
        self.nodes: list[CallNode] = []
        self.pieces: list[Piece | None] = []
        self._read()

    def _read(self) -> None:
        touched: dict[Any, set[int]] = defaultdict(set)  # the calls that read or write each tensor
        writers: dict[Any, set[int]] = defaultdict(set)
        last: dict[str, int] = {}  # the last call of each kernel
        barrier = -1
        for place, binding in enumerate(self._bindings):
            value = self._uses.resolve(binding.value)
            if _stands_for_tensor(binding, value):
                self._names[binding.var] = place
                continue
            number = len(self.nodes)
            reads, writes = self._tensors(binding, value)
            needs = {barrier} if barrier >= 0 else set[int]()
            needs.update(*(writers[tensor] for tensor in reads))
            needs.update(*(touched[tensor] for tensor in writes))
            follows = frozenset[int]()
            piece = None
            if self._is_fixed(place, value):
                needs, barrier = set(range(number)), number
            else:
                name = str(value.op.name_hint)
                # Joins and slices call no kernel unless they copy.
                is_join = any(mark_of(self._mod[value.op], m) is not None for m in _JOINS)
                piece = None if is_join else self._piece(name)
                # Reports match operators with calls of one kernel by their order.
                follows = frozenset({last[name]} if name in last else ())
                last[name] = number
            for tensor in writes:
                writers[tensor].add(number)
            for tensor in (*reads, *writes):
                touched[tensor].add(number)
            self._numbers.append(place)
            size = sum(bytes_in(tensor) for tensor in writes if tensor in self._uses.roots)
            self.nodes.append(CallNode(frozenset(needs), follows, piece is not None, size))
            self.pieces.append(piece)

    def _tensors(self, binding: Any, value: Expr) -> tuple[list[Any], list[Any]]:
        if not is_kernel_call(value, self._mod):
            return [], [*_roots(self._uses, [value]), binding.var]
        count = len(value.args) - self._written.get(value.op.name_hint, 1)
        return _roots(self._uses, value.args[:count]), _roots(self._uses, value.args[count:])

    def _is_fixed(self, place: int, value: Expr) -> bool:
        if not is_kernel_call(value, self._mod) or self._guards.of_steps[place]:
            return True
        if any(mark_of(self._mod[value.op], mark) is not None for mark in _FIXED):
            return True
        return any(place in loop for loop in self._uses.loops)

    def in_order(self, steps: Sequence[Sequence[int]]) -> Launched:
        kept: list[Any] = []
        done: set[int] = set()

        def name(binding: Any) -> None:
            for var in used_vars(binding.value):
                place = self._names.get(var)
                if place is not None and place not in done:
                    name(self._bindings[place])
                    done.add(place)
                    kept.append(self._bindings[place])

        launches = []
        for step in steps:
            calls = [self._bindings[self._numbers[number]] for number in self._longest_first(step)]
            for call in calls:
                name(call)
            if len(calls) > 1:
                launches.append((len(kept), len(kept) + len(calls) - 1))
            kept += calls
        kept += [self._bindings[i] for i in self._names.values() if i not in done]
        main = self._mod["main"]
        body = relax.SeqExpr([relax.BindingBlock(kept)], main.body.body)
        ordered = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
        functions = {var: func for var, func in self._mod.functions_items()}
        functions[self._mod.get_global_var("main")] = ordered
        return Launched(tvm.IRModule(functions, attrs=self._mod.attrs), tuple(launches))

    def _longest_first(self, step: Sequence[int]) -> list[int]:
        def shortness(number: int) -> float:
            piece = self.pieces[number]
            return 0.0 if piece is None else -piece.longest

        return sorted(step, key=shortness)


def _stands_for_tensor(binding: Any, value: Expr) -> bool:
    named = isinstance(binding, relax.VarBinding) and isinstance(value, Var | relax.Tuple)
    return named or is_placeable(value) or is_reshape(value)


def _roots(uses: Uses, values: Sequence[Expr]) -> list[Any]:
    return [uses.roots.get(var, var) for value in values for var in used_vars(value)]
