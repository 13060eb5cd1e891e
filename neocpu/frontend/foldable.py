"""Find out whether ONNX's optimiser could fold anything; if not, its import is saved.

onnxscript's ``fold_constants`` (read at version 0.7) changes nodes that read only constants,
compute shapes, or have no effect. It also infers each shape once more, which may find one.
Quantised weights stay so, for kernels that compute with them.
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


_SUMMING: Final = ("Conv", "Gemm", "MatMul")
_KEEPING: Final = ("Flatten", "Identity", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose")
"""Operators whose results are elements of their first input, or zero."""

_EIGHT_BITS: Final = (ir.DataType.INT8, ir.DataType.UINT8)


def keeps_stored(node: ir.Node) -> bool:
    """Return whether ``node`` dequantises 8-bit weights that multiply dequantised data."""
    if node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return False
    if node.inputs[0].dtype not in _EIGHT_BITS or "block_size" in node.attributes:
        return False
    readers = [use.node for use in node.outputs[0].uses()]
    return bool(readers) and all(_multiplies(reader, node.outputs[0]) for reader in readers)


def _multiplies(node: ir.Node, weights: ir.Value) -> bool:
    if node.op_type not in _SUMMING or len(node.inputs) < 2 or node.inputs[1] is not weights:
        return False
    data = node.inputs[0]
    while data is not None and (producer := data.producer()) is not None:
        if producer.op_type == "DequantizeLinear":
            return True
        if producer.op_type not in _KEEPING:
            break
        data = producer.inputs[0]
    return False
