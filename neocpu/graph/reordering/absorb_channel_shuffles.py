"""Absorb channel shuffles into the weights of the convolutions around them.

::

    conv2d(slice(shuffle(concat([conv2d(x, v), y]))), w)
        ->  conv2d(concat([slice(conv2d(x, v[order])), slice(y)]), w[:, order])

A shuffle, a split and a concatenation of channels only decide which channel is where. A convolution
can write and read its channels in any order, if its weights are permuted. Operators on each channel
alone keep the order. So the maps that convolutions read after shuffles become one concatenation of
slices, and the convolutions before order their channels so that each slice is a run. In
ShuffleNet-v2 (Ma et al., ECCV 2018) a unit then copies the half of the channels that it reads, and
the other half stays where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.convolution import is_channelwise, is_dense_conv, reordered
from neocpu.graph.rule import FunctionRule, Kind
from neocpu.ir.expressions import (
    Expr,
    channel_slice,
    is_op,
    known_shape,
    permutation_of,
    static_shape,
)
from neocpu.ir.model_names import REORDERED, channel_orders, is_numbered
from neocpu.ir.uses import bindings, consumers, definitions, used_vars

#: A feature map and the number of a channel.
Channel = tuple[Var, int]

# The most runs of a concatenation for each feature map it takes; more cost more than a shuffle.
MAX_RUNS = 2


def _absorb(func: relax.Function) -> relax.Function:
    """Return ``func`` without shuffles that only convolutions see, if it is one dataflow block."""
    if len(func.body.blocks) != 1:
        return func
    maps = _find(func)
    orders = _choose_orders(maps)
    return _emit(func, maps, orders) if orders else func


@dataclass(slots=True)
class _Maps:
    """The function's feature maps, the sources of their channels, and maps that may be permuted."""

    # The source of each channel, for results of concatenations, slices and shuffles.
    gathers: dict[Var, list[Channel]] = field(default_factory=dict)
    shuffled: set[Var] = field(default_factory=set)  # gathers that are, or come from, a shuffle
    needed: list[Var] = field(default_factory=list)  # gathers that something else reads, in order
    # The convolution's result, or the gather, whose order a map has.
    root: dict[Var, Var] = field(default_factory=dict)
    fixed: set[Var] = field(default_factory=set)  # roots whose order something else depends on

    def root_of(self, var: Var) -> Var:
        """Return the map that decides the order of ``var``, which may be ``var`` itself."""
        return self.root.get(var, var)


def _find(func: relax.Function) -> _Maps:
    known, readers = definitions(func), consumers(func)
    results = set(used_vars(func.body.body))
    maps = _Maps()
    inner: set[Var] = set()  # bindings that are part of a gather: tuples, halves of shuffles
    free: set[Var] = set()
    for binding in bindings(func):
        var, value = binding.var, binding.value
        found = _gather(value, known)
        if found is not None:
            parts, channels, between = found
            inner.update(between)
            made_of = {s: maps.gathers.get(s) or _itself(s) for s in parts}
            maps.gathers[var] = [made_of[s][c] for s, c in channels]
            if is_op(value, "relax.reshape") or not maps.shuffled.isdisjoint(parts):
                maps.shuffled.add(var)
            maps.root[var] = var
            free.add(var)
        elif is_dense_conv(value, known):
            maps.root[var] = var
            free.add(var)
        elif is_channelwise(value, known):
            maps.root[var] = maps.root_of(value.args[0])
    inner -= _read_elsewhere(inner, maps, readers, results)
    for var in (*func.params, *known):
        outside = [r for r in readers[var] if r not in maps.gathers and r not in inner]
        seen = var in results or any(not _tolerates(known[r], var, known) for r in outside)
        if seen or maps.root_of(var) not in free:
            maps.fixed.add(maps.root_of(var))
        if var in maps.gathers and (outside or var in results):
            maps.needed.append(var)
    return maps


def _read_elsewhere(
    inner: set[Var], maps: _Maps, readers: Mapping[Var, Sequence[Var]], results: set[Var]
) -> set[Var]:
    found: set[Var] = set()
    while True:
        more = {
            var
            for var in inner - found
            if var in results
            or any(r in found or not (r in inner or r in maps.gathers) for r in readers[var])
        }
        if not more:
            return found
        found |= more


def _itself(var: Var) -> list[Channel]:
    shape = known_shape(var)
    return [(var, channel) for channel in range(shape[1])]


def _gather(
    value: Expr, known: dict[Var, Expr]
) -> tuple[list[Var], list[Channel], list[Var]] | None:
    shape = static_shape(value) if isinstance(value, Call) else None
    if shape is None or len(shape) != 4:
        return None
    if is_op(value, "relax.concat"):
        return _concat(value, known)
    if is_op(value, "relax.strided_slice"):
        run, data = channel_slice(value), value.args[0]
        return None if run is None else ([data], [(data, c) for c in range(*run)], [])
    return _shuffle(value, known) if is_op(value, "relax.reshape") else None


def _concat(
    call: Call, known: dict[Var, Expr]
) -> tuple[list[Var], list[Channel], list[Var]] | None:
    between = [call.args[0]] if isinstance(call.args[0], Var) else []
    parts = known.get(call.args[0]) if between else call.args[0]
    if not isinstance(parts, relax.Tuple) or int(call.attrs.axis or 0) % 4 != 1:
        return None
    fields = list(parts.fields)
    if not all(isinstance(part, Var) and static_shape(part) for part in fields):
        return None
    return fields, [channel for part in fields for channel in _itself(part)], between


def _shuffle(
    call: Call, known: dict[Var, Expr]
) -> tuple[list[Var], list[Channel], list[Var]] | None:
    """Match ``(n, c, h, w)`` reshaped to ``(n, g, c/g, h, w)``, middle axes swapped, and back."""
    swapped: Expr = known.get(call.args[0])
    split: Expr = known.get(swapped.args[0]) if is_op(swapped, "relax.permute_dims") else None
    if not is_op(split, "relax.reshape"):
        return None
    data, shape, parts = split.args[0], static_shape(call), static_shape(split)
    if not isinstance(data, Var) or shape is None or static_shape(data) != shape:
        return None
    n, c, h, w = shape
    if (
        permutation_of(swapped) != (0, 2, 1, 3, 4)
        or parts is None
        or parts[0::3] != (n, h)
        or parts[4] != w
    ):
        return None
    order = np.arange(c).reshape(parts[1:3]).T.ravel()
    return [data], [(data, int(channel)) for channel in order], [call.args[0], swapped.args[0]]


def _tolerates(value: Expr, var: Var, known: Mapping[Var, Expr]) -> bool:
    takes = is_dense_conv(value, known) or is_channelwise(value, known)
    return takes and value.args[0].same_as(var)


def _choose_orders(maps: _Maps) -> dict[Var, list[int]]:
    """Return the old channel at each new position, for each root that is permuted."""
    chosen = [v for v in maps.needed if v in maps.shuffled and v not in maps.fixed]
    while chosen:
        fixed = _fixed(maps, chosen)
        orders = _orders(maps, chosen, fixed)
        good = [v for v in chosen if v not in fixed and _is_worth(maps, orders, v)]
        if len(good) == len(chosen):
            return orders
        chosen = good
    return {}


def _fixed(maps: _Maps, chosen: Sequence[Var]) -> set[Var]:
    fixed = set(maps.fixed)
    for gather in maps.needed:
        if gather not in chosen:
            fixed |= {gather, *(maps.root_of(source) for source, _ in maps.gathers[gather])}
    return fixed


def _is_worth(maps: _Maps, orders: dict[Var, list[int]], gather: Var) -> bool:
    sources = {source for source, _ in maps.gathers[gather]}
    return len(list(_runs(maps, orders, gather))) <= MAX_RUNS * len(sources)


def _orders(maps: _Maps, chosen: list[Var], fixed: set[Var]) -> dict[Var, list[int]]:
    users: dict[Var, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, gather in enumerate(chosen):
        for source, channel in maps.gathers[gather]:
            users[maps.root_of(source)][channel].append(number)
    orders: dict[Var, list[int]] = {}
    for root, readers in users.items():
        if root not in maps.gathers and root not in fixed:
            count = len(_itself(root))
            orders[root] = sorted(range(count), key=lambda c: (readers.get(c, []), c))
    for gather in chosen:
        orders[gather] = _gathered_order(maps, orders, gather)
    return orders


def _gathered_order(maps: _Maps, orders: dict[Var, list[int]], gather: Var) -> list[int]:
    """Order a gather's channels as in memory; the map with the most channels comes first."""
    channels = maps.gathers[gather]
    sources = [source for source, _ in channels]
    ranked = sorted(dict.fromkeys(sources), key=lambda s: -sources.count(s))
    rank = {source: number for number, source in enumerate(ranked)}
    places = {source: _places(maps, orders, source) for source in ranked}

    def place(index: int) -> tuple[int, int]:
        source, channel = channels[index]
        return rank[source], places[source][channel]

    return sorted(range(len(channels)), key=place)


def _places(maps: _Maps, orders: dict[Var, list[int]], var: Var) -> list[int]:
    order = orders.get(maps.root_of(var), range(len(_itself(var))))
    return [int(place) for place in np.argsort(np.asarray(order))]


def _runs(maps: _Maps, orders: dict[Var, list[int]], gather: Var) -> Iterator[tuple[Var, int, int]]:
    """Yield ``(feature map, first channel, end)`` for each run that a gather concatenates."""
    channels = maps.gathers[gather]
    places = {s: _places(maps, orders, s) for s in dict.fromkeys(s for s, _ in channels)}
    lies = [(s, places[s][c]) for s, c in (channels[i] for i in orders[gather])]
    numbered = enumerate(lies)
    for (source, _), group in groupby(
        numbered, key=lambda item: (item[1][0], item[1][1] - item[0])
    ):
        run = [place for _, (_, place) in group]
        yield source, run[0], run[-1] + 1


def _emit(func: relax.Function, maps: _Maps, orders: dict[Var, list[int]]) -> relax.Function:
    builder, known = relax.BlockBuilder(), definitions(func)
    replaced: dict[Var, Var] = {}
    emitted: list[relax.VarBinding] = []

    def bind(value: Expr, name: str) -> Var:
        value = builder.normalize(value)
        var = relax.DataflowVar(name, value.ty)
        emitted.append(relax.VarBinding(var, value))
        return var

    for binding in bindings(func):
        var, value = binding.var, binding.value
        # Nothing else reads permuted maps; gathers that stay read the maps as they were.
        if is_dense_conv(value, known) or is_channelwise(value, known):
            before = orders.get(maps.root_of(value.args[0]))
            value = reordered(value, known, before, orders.get(var))
            args = [bind(arg, "weights") if isinstance(arg, Call) else arg for arg in value.args]
            args = [replaced.get(arg, arg) if isinstance(arg, Var) else arg for arg in args]
            value = Call(value.op, args, value.attrs, value.ty_args, ret_ty=value.ty)
        emitted.append(relax.VarBinding(var, value))
        if var in maps.gathers and var in orders:
            parts = [
                bind(relax.op.strided_slice(s, [1], [first], [end]), f"{var.name}_part")
                if (first, end) != (0, len(_itself(s)))
                else s
                for s, first, end in _runs(maps, orders, var)
            ]
            joined = bind(relax.op.concat(parts, 1), str(var.name)) if len(parts) > 1 else parts[0]
            replaced[var] = joined
    block = relax.DataflowBlock(emitted)
    body = relax.SeqExpr([block], func.body.body)
    rebuilt = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    reported = dict(channel_orders(func))
    for each in emitted:
        name, order = str(each.var.name), orders.get(maps.root_of(each.var), [])
        if order != sorted(order) and not is_numbered(name):
            known_order = reported.get(name, tuple(range(len(order))))
            reported[name] = tuple(known_order[place] for place in order)
    rebuilt = rebuilt.with_attr(REORDERED, {name: list(order) for name, order in reported.items()})
    return relax.analysis.remove_all_unused(rebuilt)


ABSORB_CHANNEL_SHUFFLES: Final = FunctionRule(
    "absorb-channel-shuffles",
    Kind.REORDERING,
    "Shuffled channels stay where they are: the weights around them are permuted.",
    rewrite=_absorb,
)
