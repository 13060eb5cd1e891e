"""Simpler forms of loops: with a number of steps for a condition, and rows for growing lists."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeAlias

import numpy as np
import onnx

from neocpu.frontend.control_flow.bodies import free_names, live_nodes, reads
from neocpu.frontend.control_flow.known_values import Array, Knowledge
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.subgraphs import graphs_of

MAX_COUNTED: Final = 100_000  # steps that are tried; this many take seconds
_MAX_ELEMENTS: Final = 64  # elements of a state that the condition depends on


def constant_steps(
    body: onnx.GraphProto,
    states: Sequence[str],
    value: Callable[[str], Knowledge],
    opsets: Sequence[onnx.OperatorSetIdProto],
    most: int | None,
) -> int | None:
    """Return the steps of a Loop that begins, at most ``most``, from first ``states``; or None."""
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


RowLoop: TypeAlias = tuple[onnx.NodeProto, tuple[tuple[str, str, str], ...]]
"""A Loop that makes rows, its last outputs, instead of appending to lists; and each list before the
loop, after it, and its rows."""


def with_rows(
    node: onnx.NodeProto, is_list: Container[str], fresh: Callable[[str], str]
) -> RowLoop | None:
    """Return a Loop with rows instead of lists; None if it uses a list in another way."""
    new = onnx.NodeProto()
    new.CopyFrom(node)
    body, states = attributes_of(new)["body"], len(node.input) - 2
    places = [i for i in range(states) if node.input[2 + i] in is_list]
    found = [_appended(body, place) for place in places]
    elements = [each for each in found if each is not None]
    if len(elements) < len(places):
        return None
    results = [*node.output, *[""] * (len(body.output) - 1 - len(node.output))]
    lists = tuple(
        (node.input[2 + place], results[place], fresh(f"{element}/rows"))
        for place, element in zip(places, elements, strict=True)
    )
    gone = {body.input[2 + place].name for place in places}
    for place in reversed(places):
        del body.input[2 + place], body.output[1 + place], new.input[2 + place], results[place]
    body.output.extend(onnx.ValueInfoProto(name=name) for name in elements)
    live = live_nodes(body.node, (value.name for value in body.output))
    if any(name in gone for each in live for name in reads(each)):
        return None
    del body.node[:]
    body.node.extend(live)
    new.output[:] = [*results, *(name for *_, name in lists)]
    return new, lists


def _appended(body: onnx.GraphProto, place: int) -> str | None:
    name, result = body.input[2 + place].name, body.output[1 + place].name
    makers = {made: node for node in body.node for made in node.output}
    while result in makers and makers[result].op_type == "Identity":
        result = makers[result].input[0]
    maker = makers.get(result)
    if maker is None or maker.op_type != "SequenceInsert" or maker.input[0] != name:
        return None
    return str(maker.input[1]) if len(maker.input) == 2 else None
