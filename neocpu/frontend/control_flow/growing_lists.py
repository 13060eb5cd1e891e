"""Turn lists that a loop appends to in each step into rows, which are further outputs."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import onnx

from neocpu.frontend.control_flow.bodies import inner_graph, live_nodes, reads


@dataclass(frozen=True, slots=True)
class RowLoop:
    """A Loop that makes rows instead of appending to lists.

    Attributes
    ----------
    node : onnx.NodeProto
        The node without the lists; its last outputs are the rows of each list.
    lists : tuple of (str, str, str)
        The name of each list before the loop, its name after the loop, and the name of its rows.
    """

    node: onnx.NodeProto
    lists: tuple[tuple[str, str, str], ...]


def with_rows(
    node: onnx.NodeProto, is_list: Container[str], fresh: Callable[[str], str]
) -> RowLoop | None:
    """Return a Loop with rows instead of lists; None if it uses a list in another way.

    Parameters
    ----------
    node : onnx.NodeProto
        A Loop; one without lists among its states is returned unchanged.
    is_list : container of str
        The outer values that are lists.
    fresh : callable
        A function that makes names.
    """
    new = onnx.NodeProto()
    new.CopyFrom(node)
    body, states = inner_graph(new, "body"), len(node.input) - 2
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
    return RowLoop(new, lists)


def _appended(body: onnx.GraphProto, place: int) -> str | None:
    """Return the value that a step appends to a list, or None."""
    name, result = body.input[2 + place].name, body.output[1 + place].name
    makers = {made: node for node in body.node for made in node.output}
    while result in makers and makers[result].op_type == "Identity":
        result = makers[result].input[0]
    maker = makers.get(result)
    if maker is None or maker.op_type != "SequenceInsert" or maker.input[0] != name:
        return None
    return str(maker.input[1]) if len(maker.input) == 2 else None
