"""Quantised weights that stay quantised, for kernels that compute with them."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

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
