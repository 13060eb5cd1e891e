"""The nodes around the body of a loop that the runtime repeats: ours, and no standard ones.

Whatever lies between the begin and the end of a loop, and depends on what the begin makes, is done
in each step. What the steps read of the graph around comes through a node too, behind which nothing
is fused that would then be computed in each step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx
from onnx import TensorProto, helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import OWN_DOMAIN

BEGIN: Final = "LoopBegin"
"""Reads the first values of the states, and perhaps how often the body runs (int64); makes the
number of the step, and the states."""

END: Final = "LoopEnd"
"""Reads the number of the step, the next states, rows, and perhaps whether the body runs once more
(bool); makes the last states, and outputs of as many rows as the body runs."""

OUTER: Final = "LoopOuter"
"""Reads a value of the graph around, and makes it."""


ELEMENT: Final = "LoopElement"
"""Reads a value, and the number of the step; makes the element of an axis that is the step's."""


@dataclass(frozen=True, slots=True)
class Kind:
    """ONNX's code of an element type, and a static shape."""

    element: int
    shape: tuple[int, ...]


NUMBER: Final = Kind(TensorProto.INT64, ())
"""Of the number of a step."""


_ALL: Final = frozenset((BEGIN, ELEMENT, END, OUTER))


def begin(
    name: str, states: Sequence[str], count: str | None, outputs: Sequence[str]
) -> onnx.NodeProto:
    """Return the begin of a loop: ``outputs`` are the number of the step, and the states."""
    return helper.make_node(
        BEGIN,
        [*states, *([count] if count else ())],
        outputs,
        name=f"{name}/begin",
        domain=OWN_DOMAIN,
        loop=name,
        states=len(states),
    )


def end(
    name: str,
    limit: int,
    made: Sequence[str],
    states: int,
    backward: Sequence[bool],
    condition: str | None,
    outputs: Sequence[str],
) -> onnx.NodeProto:
    """Return the end of a loop.

    Parameters
    ----------
    limit : int
        The most steps it takes.
    made : sequence of str
        The number of the step, the next states and the rows.
    states : int
        The number of states.
    backward : sequence of bool
        Whether the last step's comes first, for each row.
    condition : str, optional
        Whether the body runs once more.
    outputs : sequence of str
        The last states, and what the rows make.
    """
    return helper.make_node(
        END,
        [*made, *([condition] if condition else ())],
        outputs,
        name=f"{name}/end",
        domain=OWN_DOMAIN,
        loop=name,
        limit=limit,
        states=states,
        backward="".join("01"[each] for each in backward),
    )


def outer(value: str, result: str) -> onnx.NodeProto:
    """Return the node through which the steps read a value of the graph around."""
    return helper.make_node(OUTER, [value], [result], name=result, domain=OWN_DOMAIN)


def element(
    value: str, number: str, axis: int, limit: int, result: str, *, backward: bool
) -> onnx.NodeProto:
    """Return the node that takes an element, of ``limit`` ones along an axis, not negative."""
    return helper.make_node(
        ELEMENT,
        [value, number],
        [result],
        name=result,
        domain=OWN_DOMAIN,
        axis=axis,
        limit=limit,
        backward=int(backward),
    )


def _attributes(node: onnx.NodeProto) -> tuple[int, int, str]:
    """Return how many states there are, how often a body runs at most, and the ways of its rows."""
    given = attributes_of(node)
    return int(given["states"]), int(given.get("limit", 0)), given.get("backward", b"").decode()


def repeated(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield the nodes of a graph, in order, and how often a run computes each at most."""
    listed = list(nodes)
    ends = {_loop(node): _attributes(node)[1] for node in listed if _is(node, END)}
    limits: list[int] = []
    for node in listed:
        yield node, math.prod(limits)
        if _is(node, BEGIN):
            limits.append(ends[_loop(node)])
        elif _is(node, END):
            limits.pop()


def _is(node: onnx.NodeProto, op_type: str) -> bool:
    return bool(node.domain == OWN_DOMAIN and node.op_type == op_type)


def _loop(node: onnx.NodeProto) -> bytes:
    return bytes(attributes_of(node)["loop"])


def kinds_of(graph: onnx.GraphProto) -> dict[str, Kind]:
    """Return what all values of a graph are of which element type and shape are known."""
    kinds = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
        if kind.elem_type and kind.HasField("shape") and len(dims) == len(kind.shape.dim):
            kinds[value.name] = Kind(kind.elem_type, tuple(dims))
    kinds |= {each.name: Kind(each.data_type, tuple(each.dims)) for each in graph.initializer}
    return kinds


def made_by(node: onnx.NodeProto, kinds: Mapping[str, Kind]) -> list[Kind] | None:
    """Return what the outputs of one of these nodes are; None if an input is not known."""
    if node.op_type in (OUTER, ELEMENT):
        value = kinds.get(node.input[0])
        if value is None or node.op_type == OUTER:
            return None if value is None else [value]
        axis = int(attributes_of(node)["axis"])
        return [Kind(value.element, (*value.shape[:axis], *value.shape[axis + 1 :]))]
    states, limit, ways = _attributes(node)
    first = 1 if node.op_type == END else 0  # behind the number of the step
    given = [kinds.get(name) for name in node.input[first : first + states + len(ways)]]
    known = [kind for kind in given if kind is not None]
    if len(known) < len(given):
        return None
    stacked = (Kind(row.element, (limit, *row.shape)) for row in known[states:])
    return [*([NUMBER] if node.op_type == BEGIN else ()), *known[:states], *stacked]


def declared(
    nodes: Sequence[onnx.NodeProto], kinds: Mapping[str, Kind]
) -> Iterator[onnx.ValueInfoProto]:
    """Yield what such nodes make, of all nodes of a graph in order, where ``kinds`` lacks it."""
    known = dict(kinds)
    for node in nodes:
        if node.domain != OWN_DOMAIN or node.op_type not in _ALL:
            continue
        for name, kind in zip(node.output, made_by(node, known) or (), strict=False):
            if name and name not in known:
                known[name] = kind
                yield helper.make_tensor_value_info(name, kind.element, kind.shape)


def body_model(
    around: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    constants: Iterable[onnx.TensorProto],
    kinds: Mapping[str, Kind],
    results: Iterable[str],
) -> onnx.ModelProto:
    """Return the body of a loop as a model of its own.

    Parameters
    ----------
    around : onnx.ModelProto
        The model whose opsets hold.
    nodes : sequence of NodeProto
    constants : iterable of TensorProto
    kinds : mapping of str to Kind
        Types and shapes of the values that the nodes read. All but the constants are inputs.
    results : iterable of str
    """
    outputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(results)]
    graph = helper.make_graph(nodes, "body", [], outputs, list(constants))
    known = {each.name for each in graph.initializer}
    graph.input.extend(
        helper.make_tensor_value_info(name, kind.element, kind.shape)
        for name, kind in kinds.items()
        if name not in known
    )
    opsets = around.opset_import
    return helper.make_model(graph, opset_imports=opsets, ir_version=around.ir_version)
