"""Graphs within graphs: If and Loop."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.graph_builder import BOOL, FLOAT, GraphBuilder, Value

Results = tuple[Value, ...] | None
_STEPS = ("Relu", "Neg", "Sigmoid", "Abs", "Tanh")


def conditional(b: GraphBuilder, op: str) -> Results:
    """Add an If whose branches read a value of the outer graph."""
    x = b.take()
    condition = b.constant(b.array((), BOOL)) if b.chance(0.5) else b.feed(b.array((), BOOL))
    branches = [_branch(b, x, f"{b.fresh()}_") for _ in range(2)]
    result = Value(b.fresh(), x.dtype, x.shape)
    b.keep(condition)
    b.nodes.append(
        helper.make_node(
            op,
            [condition.name],
            [result.name],
            then_branch=branches[0].graph([branches[0].values[-1]], "then"),
            else_branch=branches[1].graph([branches[1].values[-1]], "else"),
        )
    )
    b.values.append(result)
    return (result,)


def _branch(b: GraphBuilder, x: Value, prefix: str) -> GraphBuilder:
    inner = GraphBuilder(b.rng, b.opset, prefix)
    inner.values.append(x)
    for _ in range(b.rng.randint(1, 2)):
        inner.add(b.rng.choice(_STEPS), inner.values[-1])
    return inner


def loop(b: GraphBuilder, op: str) -> Results:
    """Loop a few times over one carried value."""
    x = b.take()
    inner = GraphBuilder(b.rng, b.opset, f"{b.fresh()}_")
    count, going = Value(inner.fresh(), np.dtype(np.int64), ()), Value(inner.fresh(), BOOL, ())
    carried = Value(inner.fresh(), FLOAT, x.shape)
    inner.inputs += [count, going, carried]
    on = inner.add("Identity", going)
    after = inner.add(b.rng.choice(_STEPS), carried)
    trips = b.constant(np.array(b.rng.randint(0, 3)))
    start = b.constant(np.array(True))
    result = Value(b.fresh(), x.dtype, x.shape)
    if on is None or after is None:
        return None
    b.keep(trips)
    b.keep(start)
    body = inner.graph([*on, *after], "body")
    names = [trips.name, start.name, x.name]
    b.nodes.append(helper.make_node(op, names, [result.name], body=body))
    b.values.append(result)
    return (result,)


RECIPES = {"If": conditional, "Loop": loop}
