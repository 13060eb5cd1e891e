"""The number of steps of a Loop whose condition is constant in each, as in `while i < 1000`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import onnx

from neocpu.frontend.control_flow.bodies import free_names, live_nodes
from neocpu.frontend.control_flow.known_values import Array, Knowledge
from neocpu.frontend.onnx_graph.subgraphs import graphs_of

MAX_COUNTED: Final = 100_000
"""Steps that are tried; this many take seconds."""

_MAX_ELEMENTS: Final = 64
"""Elements of a state that the condition depends on."""


def constant_steps(
    body: onnx.GraphProto,
    states: Sequence[str],
    value: Callable[[str], Knowledge],
    opsets: Sequence[onnx.OperatorSetIdProto],
    most: int | None,
) -> int | None:
    """Return the number of steps of a Loop that begins; None if it is not known.

    Parameters
    ----------
    body : onnx.GraphProto
    states : sequence of str
        The first values of the states, in the outer graph.
    value : callable
        A function that returns the knowledge of a value of the outer graph.
    opsets : sequence of OperatorSetIdProto
        The model's operator sets.
    most : int, optional
        The most steps it may take.
    """
    inputs = [each.name for each in body.input]
    outputs = [each.name for each in body.output]
    results = [outputs[0]]
    nodes, read = _deciding(body, results)
    kept: list[int] = []
    while new := [i for i, name in enumerate(inputs[2:]) if name in read and i not in kept]:
        kept += new
        results += [outputs[1 + i] for i in new]
        nodes, read = _deciding(body, results)
    if any(graphs_of(node) for node in nodes):
        return None
    current = {inputs[2 + i]: value(states[i]) for i in kept}
    outer = {name: value(name) for name in read - {*inputs}}
    given: dict[str, Array] = {}
    for name, known in (*current.items(), *outer.items()):
        if not isinstance(known, np.ndarray) or known.size > _MAX_ELEMENTS:
            return None
        given[name] = known
    given[inputs[1]] = np.array(True)
    limit = MAX_COUNTED if most is None else min(most, MAX_COUNTED)
    # Imported here, because few models have such loops.
    from neocpu.frontend.numpy_operators.table import evaluator_of_nodes

    try:
        with np.errstate(all="ignore"):  # overflow and 0/0 are the model's own
            evaluator = evaluator_of_nodes(nodes, [*given, inputs[0]], results, opsets)
            for step in range(limit):
                again, *made = evaluator.run(None, {**given, inputs[0]: np.array(step)})
                if not again.item():
                    return step + 1
                given |= zip((inputs[2 + i] for i in kept), made, strict=True)
    except Exception:  # any error; the importer reports it
        return None
    return most if most == limit else None


def _deciding(
    body: onnx.GraphProto, results: Sequence[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """Return the nodes that values depend on, in order, and the outer values that they read."""
    nodes = live_nodes(body.node, results)
    return nodes, {*free_names(nodes, results, ())}
