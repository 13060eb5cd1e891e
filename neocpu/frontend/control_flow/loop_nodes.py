"""Our own nodes around the body of a loop that the runtime repeats.

Each step computes the nodes between a loop's begin and end that depend on outputs of the begin. The
steps read outer values through nodes too: fusion would move outer computations into them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx import TensorProto, helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import OWN_DOMAIN

BEGIN: Final = "LoopBegin"
"""Reads the first values of the states, and optionally the number of steps (int64). Makes the
number of the step, and the states. Its attributes are the loop's name and the number of states."""
END: Final = "LoopEnd"
"""Reads the number of the step, the next states, rows, and optionally a condition to go on (bool).
Makes the last states, and outputs of one row per step. Its attributes are those of the begin, the
most steps, and a digit for each output of rows: 1 if the rows are in reverse order."""
OUTER: Final = "LoopOuter"  # reads an outer value, and makes it available within the loop
ELEMENT: Final = "LoopElement"
"""Reads a value and the number of the step. Makes the step's element along an axis, which is not
negative, at most of ``limit`` steps, from the last one on if ``backward``."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A tensor's element type, by ONNX's code, and its static shape."""

    element: int
    shape: tuple[int, ...]


NUMBER: Final = Kind(TensorProto.INT64, ())
"""The kind of the number of a step."""


_ALL: Final = frozenset((BEGIN, ELEMENT, END, OUTER))


def own_node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, name=name, domain=OWN_DOMAIN, **attributes)


def _attributes(node: onnx.NodeProto) -> tuple[int, int, str]:
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
    """Return the element types and shapes of a graph's values, as far as both are known."""
    kinds = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
        if kind.elem_type and kind.HasField("shape") and len(dims) == len(kind.shape.dim):
            kinds[value.name] = Kind(kind.elem_type, tuple(dims))
    kinds |= {each.name: Kind(each.data_type, tuple(each.dims)) for each in graph.initializer}
    return kinds


def made_by(node: onnx.NodeProto, kinds: Mapping[str, Kind]) -> list[Kind] | None:
    """Return the kinds of one of these nodes' outputs; None if an input's is not known."""
    if node.op_type in (OUTER, ELEMENT):
        value = kinds.get(node.input[0])
        if value is None or node.op_type == OUTER:
            return None if value is None else [value]
        axis = int(attributes_of(node)["axis"])
        return [Kind(value.element, (*value.shape[:axis], *value.shape[axis + 1 :]))]
    states, limit, ways = _attributes(node)
    first = 1 if node.op_type == END else 0  # the first input of an end is the step's number
    given = [kinds.get(name) for name in node.input[first : first + states + len(ways)]]
    known = [kind for kind in given if kind is not None]
    if len(known) < len(given):
        return None
    stacked = (Kind(row.element, (limit, *row.shape)) for row in known[states:])
    return [*([NUMBER] if node.op_type == BEGIN else ()), *known[:states], *stacked]


def declared(
    nodes: Sequence[onnx.NodeProto], kinds: Mapping[str, Kind]
) -> Iterator[onnx.ValueInfoProto]:
    """Yield the outputs of these nodes, among a graph's in order, that ``kinds`` lacks."""
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
    """Return a loop's body as a model; all values of ``kinds`` but constants become its inputs."""
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
