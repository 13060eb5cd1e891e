"""Explain why the shape of an output is not known: which node makes a tensor of unknown shape."""

from __future__ import annotations

import math
from typing import Final

import onnx

from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.subgraphs import graphs_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.structural_inputs import inputs_behind, operands
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_BY_DATA: Final = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose number of results depends on the values of their data."""


_MOST: Final = 17
"""Elements from which a suggestion would be too long to write out."""


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
