"""Inputs of a model that decide shapes, so that a plan depends on their values or is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import onnx

from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.subgraphs import all_nodes, graphs_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.static_shapes import real_inputs
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_PLACES: Final = {
    (1,): """
        AffineGrid CenterCropPad CumProd CumSum Expand Reshape SequenceAt SequenceErase
        Split SplitToSequence Squeeze Tile TopK Trilu Unsqueeze Upsample ReduceL1 ReduceL2
        ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare
    """,
    (1, 2): "Clip Col2Im DequantizeLinear Dropout OneHot QuantizeLinear",
    (0,): "ConstantOfShape If BlackmanWindow HammingWindow HannWindow",
    (0, 1): "Loop",
    (2,): "MaxUnpool SequenceInsert",
    (2, 3, 4): "NonMaxSuppression",
    (1, 2, 3): "Pad Resize",
    (1, 2, 3, 4, 5, 6, 7, 8): "QLinearConv",
    (1, 2, 4, 5, 6, 7): "QLinearMatMul",
    (0, 1, 2): "Range",
    (1, 2, 3, 4): "Slice",
}
STRUCTURAL: Final[Mapping[str, tuple[int, ...]]] = {
    op_type: places for places, names in _PLACES.items() for op_type in names.split()
}
"""The positions of parameters among each operator's inputs; the other inputs are data."""


def structural_inputs(model: onnx.ModelProto) -> frozenset[str]:
    """Return the inputs of a model whose values decide a shape, or a parameter of an operator."""
    nodes = all_nodes(model.graph.node)
    return inputs_behind(model.graph, (name for node in nodes for name in operands(node)))


def inputs_behind(graph: onnx.GraphProto, names: Iterable[str]) -> frozenset[str]:
    """Return the inputs whose values some values are computed from, up to `Shape` and `Size`."""
    nodes = list(all_nodes(graph.node))
    sources = {name: list(node.input) for node in nodes for name in node.output}
    for node in nodes:
        if node.op_type in ("Shape", "Size"):
            sources[node.output[0]] = []
        for body in graphs_of(node):
            # A body's inputs come from its node's inputs, and its outputs are its node's outputs.
            sources |= {value.name: list(node.input) for value in body.input}
            for name in node.output:
                sources[name] += [value.name for value in body.output]
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name and name not in found:
            found.add(name)
            waiting += sources.get(name, ())
    return frozenset(value.name for value in real_inputs(graph) if value.name in found)


def operands(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the inputs of a node that are parameters, not data; some may be left out."""
    places = STRUCTURAL.get(node.op_type, ()) if node.domain in STANDARD_DOMAINS else ()
    for place in places:
        if place < len(node.input):
            yield node.input[place]


_BY_DATA: Final = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose number of results depends on the values of their data."""


_MOST: Final = 17  # elements from which a suggestion would be too long to write out


def why_unknown(graph: onnx.GraphProto, output: str) -> str:
    """Return the reason why the shape of an output is unknown; the graph has all known shapes."""
    shapes, constants = known_shapes(graph), constant_tensors(graph)
    for node in graph.node:
        if all(name in shapes for name in node.output if name):
            continue
        read = [name for name in operands(node) if name and name not in constants]
        standard = node.domain in STANDARD_DOMAINS and node.op_type not in _BY_DATA
        fits = all(name in shapes for name in node.input if name)
        if standard and fits and not read and not graphs_of(node):
            return (
                f"ONNX infers no shape of what {describe(node)} makes: its attributes and constants"
                " do not fit its inputs, or are of a form that is not supported"
            )
        by = f" by '{read[0]}'" if read else ""
        reason = (
            f"the shape of output '{output}' depends on the data ({describe(node)} decides it{by})"
        )
        deciding = sorted(inputs_behind(graph, read[:1]))
        if deciding and all(math.prod(shapes.get(name, (_MOST,))) < _MOST for name in deciding):
            options = " ".join(
                f"--shape {name}={','.join(['N'] * math.prod(shapes[name]))}" for name in deciding
            )
            plural = "values" if len(deciding) > 1 else "value"
            return f"{reason}; fix the {plural} of what decides it with {options}"
        return f"{reason}; only static shapes are supported"
    return f"the shape of output '{output}' depends on the data; only static shapes are supported"
