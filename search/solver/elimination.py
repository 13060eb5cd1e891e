"""Bucket elimination: exact for any graph whose tables stay small (bounded treewidth).

Eliminating a node with many neighbours leaves a table over all of them. The order decides how large
the tables get, so orders are first tried without computing anything, then the cheapest is carried
out, or none if its tables would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocpu.search.solver.reductions import Problem, Step, index_type

# Binary logarithm of the entries computed in one elimination: a second's; branching beats more.
LOG_MAX_WORK = 27
# Bytes of an entry of a table that is being made: its costs, those of one choice, which is better.
ENTRY_BYTES = 8 + 8 + 1


@dataclass(frozen=True, slots=True)
class EliminationOrder:
    """An order, the most bytes its tables take at a time, and the entries it computes in all."""

    nodes: tuple[int, ...]
    peak_bytes: int
    work: int


@dataclass(frozen=True, slots=True)
class _Factor:
    scope: tuple[int, ...]
    table: NDArray[np.float64]


_Score = Callable[[int, dict[int, set[int]]], float]
_Neighbours = Mapping[int, Iterable[int]]


def best_order(
    problem: Problem, max_bytes: int, expired: Callable[[], bool]
) -> EliminationOrder | None:
    """Return the cheaper of the min-table-size and the min-fill order; None if both need more than
    ``max_bytes``, or more than a second or so, or time is up.
    """
    log_size = {u: math.log2(len(alive)) for u, alive in problem.alive.items()}

    def table_size(node: int, graph: _Neighbours) -> float:
        return log_size[node] + sum(log_size[v] for v in graph[node])

    def fill(node: int, graph: dict[int, set[int]]) -> float:
        around = graph[node]
        missing = sum(len(around - graph[v]) - 1 for v in around)
        return missing + table_size(node, graph) / 1e3

    if min((table_size(u, problem.pairs) for u in problem.pairs), default=0) > LOG_MAX_WORK:
        return None  # the first table would be too large already
    scores = (table_size, fill)
    orders = (_greedy_order(problem, score, max_bytes, expired) for score in scores)
    fitting = [order for order in orders if order is not None]
    return min(fitting, key=lambda order: (order.work, order.peak_bytes), default=None)


def _greedy_order(
    problem: Problem, score: _Score, max_bytes: int, expired: Callable[[], bool]
) -> EliminationOrder | None:
    graph = {u: set(row) for u, row in problem.pairs.items()}
    scores: dict[int, float] = {}
    stale = set(graph)
    order: list[int] = []
    work = peak = trail = 0
    tables: list[tuple[set[int], int]] = []  # the nodes of each table so far, and its bytes
    while graph:
        for u in stale:
            if expired():
                return None
            scores[u] = score(u, graph)
        node = min(scores, key=lambda u: (scores[u], u))
        around = graph.pop(node)
        del scores[node]
        size = math.prod(len(problem.alive[v]) for v in around)
        work += size * len(problem.alive[node])
        trail += size * index_type(len(problem.alive[node])).itemsize
        peak = max(peak, sum(table_bytes for _, table_bytes in tables) + trail + size * ENTRY_BYTES)
        if peak > max_bytes or work > 1 << LOG_MAX_WORK:
            return None
        tables = [(scope, table_bytes) for scope, table_bytes in tables if node not in scope]
        tables.append((around, 8 * size))
        order.append(node)
        for v in around:
            graph[v] |= around
            graph[v] -= {node, v}
        stale = around.union(*(graph[v] for v in around))
    return EliminationOrder(tuple(order), peak, work)


def eliminate(problem: Problem, order: EliminationOrder, expired: Callable[[], bool]) -> bool:
    """Eliminate all nodes of ``problem`` in ``order``, exactly.

    It returns False, and has eliminated none, if time was up before.
    """
    factors = [_Factor((u,), costs) for u, costs in problem.unary.items()]
    factors += [
        _Factor((u, v), matrix)
        for u, row in problem.pairs.items()
        for v, matrix in row.items()
        if u < v
    ]
    by_node: dict[int, set[int]] = {u: set() for u in problem.unary}
    for index, factor in enumerate(factors):
        for u in factor.scope:
            by_node[u].add(index)
    offset, trail = problem.offset, list(problem.trail)
    for node in order.nodes:
        bucket = sorted(by_node[node])
        scope = tuple(sorted({u for i in bucket for u in factors[i].scope} - {node}))
        found = _minimise([factors[i] for i in bucket], node, scope, problem, expired)
        if found is None:
            return False
        table, best = found
        for i in bucket:
            for u in factors[i].scope:
                by_node[u].discard(i)
            factors[i] = _Factor((), np.zeros(()))  # its table's memory is free again
        factors.append(_Factor(scope, table))
        for u in scope:
            by_node[u].add(len(factors) - 1)
        theirs = tuple(problem.alive[u] for u in scope)
        trail.append(Step(node, problem.alive[node], scope, theirs, best))
        if not scope:
            offset += float(table)
    problem.offset, problem.trail = offset, trail
    for node in order.nodes:
        problem.forget(node)
    return True


def _minimise(
    bucket: list[_Factor],
    node: int,
    scope: tuple[int, ...],
    problem: Problem,
    expired: Callable[[], bool],
) -> tuple[NDArray[np.float64], NDArray[np.integer]] | None:
    """Sum ``bucket`` and minimise over ``node``, one table at a time; None if time was up."""
    aligned = [_align(factor, node, scope) for factor in bucket]
    count = len(problem.alive[node])
    shape = tuple(len(problem.alive[u]) for u in scope)
    table = np.full(shape, np.inf)
    best = np.zeros(shape, dtype=index_type(count))
    for choice in range(count):
        if expired():
            return None
        total = np.zeros(shape)
        for part in aligned:
            total += part[choice]
        better = total < table
        np.copyto(table, total, where=better)
        best[better] = choice
    return table, best


def _align(factor: _Factor, node: int, scope: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the factor's table, ``node`` as first axis, then one axis per node of ``scope``."""
    first = factor.scope.index(node)
    table = np.moveaxis(factor.table, first, 0)
    others = [u for u in factor.scope if u != node]
    shape = [table.shape[0]] + [1] * len(scope)
    axes = sorted(range(len(others)), key=lambda i: scope.index(others[i]))
    table = table.transpose(0, *(i + 1 for i in axes))
    for axis, i in enumerate(axes, start=1):
        shape[1 + scope.index(others[i])] = table.shape[axis]
    return table.reshape(shape)
