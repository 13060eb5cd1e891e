"""Find out whether ONNX's optimiser could fold anything; if not, its import is saved.

onnxscript's ``fold_constants`` (read at version 0.7) changes nodes that read only constants, nodes
that compute shapes, and nodes of some operators that have no effect. It also infers each shape once
more, which may find one that was not known.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

_REPLACED: Final = frozenset(
    """
    Cast CastLike ConcatFromSequence Dropout Expand Identity If SequenceAt SequenceConstruct Shape
    Size SplitToSequence
    """.split()
)
"""Operators that may be replaced whatever they read, or allow others to be."""

_GRAPHS: Final = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def is_foldable(graph: ir.Graph) -> bool:
    """Return whether folding may change a graph whose weights are initializers."""
    return any(map(_is_foldable, graph))


def _is_foldable(node: ir.Node) -> bool:
    if node.op_type == "Constant":
        return False
    if node.op_type in _REPLACED or all(map(_is_constant, node.inputs)):
        return True
    if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
        return True
    shapes = [None if value is None else value.shape for value in (*node.outputs, *node.inputs)]
    if any(shape is None or not shape.is_static() for shape in shapes[: len(node.outputs)]):
        return True
    if node.op_type == "Reshape":
        return shapes[0] == shapes[1]
    if node.op_type == "Concat":  # of one tensor, or with empty ones
        return len(node.inputs) == 1 or any(shape is None or 0 in shape for shape in shapes)
    return False


def _is_constant(value: ir.Value | None) -> bool:
    if value is None or value.const_value is not None:
        return True
    maker = value.producer()
    return maker is not None and maker.op_type == "Constant"
