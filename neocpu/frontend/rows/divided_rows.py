"""Divide convolutions and dense layers into parts of a few rows, which can be skipped.

A mask is computed for each of up to a hundred detections, but an image has about ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import onnx

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.rows.row_graph import RowGraph
from neocpu.frontend.rows.row_value import Value
from neocpu.frontend.unsupported import STANDARD_DOMAINS

PARTS: Final = 8  # the largest number; each has its own calls
FEWEST: Final = 4  # the least rows of a part: fewer take little time, valid or not
FEWEST_OF_DENSE: Final = 64  # for fewer, reading the weights again takes longer than computing
_CONVOLUTIONS: Final = frozenset(("Conv", "ConvTranspose"))
_DENSE: Final = frozenset(("Gemm", "MatMul"))
_HEAVY: Final = _CONVOLUTIONS | _DENSE
_LEAST_PRODUCTS: Final = 1 << 24  # of a dense layer worth dividing, because calls cost time too
_LIGHT: Final = frozenset(
    ("BatchNormalization", "Clip", "Elu", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
)


def divide_rows(
    graph: RowGraph, rows: Mapping[str, Value], kept: Collection[str]
) -> list[onnx.NodeProto]:
    """Return nodes with heavy chains over ``rows`` divided; ``kept`` are needed after them."""
    chains = {chain[-1].output[0]: chain for chain in _chains(graph.nodes, rows, kept)}
    inside = {node.output[0] for chain in chains.values() for node in chain}
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        if node.output[0] in chains:
            _write_parts(graph, chains[node.output[0]], rows)
        elif node.output[0] not in inside:
            graph.nodes.append(node)
    return list(_in_order(graph.nodes)) if chains else graph.nodes


def _chains(
    nodes: Sequence[onnx.NodeProto], rows: Mapping[str, Value], kept: Collection[str]
) -> Iterator[list[onnx.NodeProto]]:
    """Yield heavy nodes, each with the nodes after it as long as only the next one reads them."""
    readers = Counter(name for node in nodes for name in node.input)
    after = {node.input[0]: node for node in nodes if node.input}
    taken: set[str] = set()
    for node in nodes:
        if not _is_link(node, rows) or node.output[0] in taken or not _is_heavy(node, rows):
            continue
        chain = [node]
        while readers[chain[-1].output[0]] == 1 and chain[-1].output[0] not in kept:
            following = after.get(chain[-1].output[0])
            if following is None or not _is_link(following, rows):
                break
            chain.append(following)
        taken.update(each.output[0] for each in chain)
        yield chain


def _is_heavy(node: onnx.NodeProto, rows: Mapping[str, Value]) -> bool:
    data, made = rows[node.input[0]], rows[node.output[0]]
    if node.op_type not in _HEAVY or data.shape[0] < 2 * _fewest(node):
        return False
    return node.op_type in _CONVOLUTIONS or data.size * made.shape[-1] >= _LEAST_PRODUCTS


def _fewest(node: onnx.NodeProto) -> int:
    return FEWEST_OF_DENSE if node.op_type in _DENSE else FEWEST


def _is_link(node: onnx.NodeProto, rows: Mapping[str, Value]) -> bool:
    """Return whether a node computes images or vectors independently, some of them invalid."""
    if node.op_type not in _HEAVY | _LIGHT or node.domain not in STANDARD_DOMAINS:
        return False
    data, made = rows.get(node.input[0]), rows.get(node.output[0])
    if data is None or made is None or not data.axis == made.axis == 0:
        return False
    ranks = (2,) if node.op_type in _DENSE else (2, 4) if node.op_type in _LIGHT else (4,)
    return data.rank in ranks and rows.keys().isdisjoint(node.input[1:])


def _write_parts(
    graph: RowGraph, chain: Sequence[onnx.NodeProto], rows: Mapping[str, Value]
) -> None:
    data, last = rows[chain[0].input[0]], chain[-1]
    graph.base = chain[0].name or chain[0].output[0]
    bound, count = data.shape[0], graph.counted(data.count)
    size = max(_fewest(chain[0]), -(-bound // PARTS))
    # Zero, computed at run time so that it is not folded. It replaces a skipped part.
    below = graph.op("Less", count, graph.integers(0))
    nothing = graph.op("Cast", below, to=rows[last.output[0]].kind)
    parts = []
    for start in range(0, bound, size):
        # Only a value that is known before a call can save the call.
        some = graph.op("Greater", count, graph.integers(start))
        scalar = graph.op("Reshape", some, graph.integers())
        part = graph.cut(data, start, min(start + size, bound), 0)
        for node in chain:
            parameters = [graph.by_name(name) if name else None for name in node.input[1:]]
            part = graph.emit(node.op_type, [part, *parameters], attributes_of(node))[0]
        otherwise = graph.op("Expand", nothing, graph.integers(*part.shape))
        parts.append(graph.op("Where", scalar, part, otherwise))
    graph.emit("Concat", parts, {"axis": 0}, last.output[:1], last.name)


def _in_order(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes after the nodes that they read, otherwise in the given order."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    done = [False] * len(nodes)
    for first in range(len(nodes)):
        waiting = [first]
        while waiting:
            index = waiting[-1]
            read = (makers[name] for name in nodes[index].input if name in makers)
            if missing := [each for each in read if not done[each]]:
                waiting += missing
                continue
            waiting.pop()
            if not done[index]:
                done[index] = True
                yield nodes[index]
