"""Our own nodes around the body of a loop that the runtime repeats.

A node between the begin and the end of a loop that depends on the outputs of the begin is computed
in each step. The steps read outer values through a node too, which keeps fusion from moving outer
computations into the steps.
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
"""Reads the first values of the states, and optionally the number of steps (int64). Makes the
number of the step, and the states."""

END: Final = "LoopEnd"
"""Reads the number of the step, the next states, rows, and optionally a condition to go on (bool).
Makes the last states, and outputs of one row per step."""

OUTER: Final = "LoopOuter"
"""Reads an outer value, and makes it available within the loop."""


ELEMENT: Final = "LoopElement"
"""Reads a value and the number of the step. Makes the step's element along an axis."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A tensor's element type, by ONNX's code, and its static shape."""

    element: int
    shape: tuple[int, ...]


NUMBER: Final = Kind(TensorProto.INT64, ())
"""The kind of the number of a step."""


_ALL: Final = frozenset((BEGIN, ELEMENT, END, OUTER))


def begin(
    name: str, states: Sequence[str], count: str | None, outputs: Sequence[str]
) -> onnx.NodeProto:
    """Return the begin of a loop; ``outputs`` are the number of the step, and the states."""
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
        The most steps.
    made : sequence of str
        The number of the step, the next states and the rows.
    states : int
        The number of states.
    backward : sequence of bool
        Whether the rows are in reverse order, for each output of rows.
    condition : str, optional
        The condition to go on.
    outputs : sequence of str
        The last states, and the outputs of the rows.
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
    """Return the node through which the steps read an outer value."""
    return helper.make_node(OUTER, [value], [result], name=result, domain=OWN_DOMAIN)


def element(
    value: str, number: str, axis: int, limit: int, result: str, *, backward: bool
) -> onnx.NodeProto:
    """Return the node that takes the step's element, along an axis that is not negative."""
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
    """Return the number of states, the most steps, and the direction of each output of rows."""
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
    """Return the body of a loop as a model of its own.

    Parameters
    ----------
    around : onnx.ModelProto
        The model whose opsets apply.
    nodes : sequence of NodeProto
    constants : iterable of TensorProto
    kinds : mapping of str to Kind
        Types and shapes of the values that the nodes read. All but the constants become inputs.
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
