"""Quantised models with signed feature maps, which some engines run by other kernels."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

_SHIFT = 128
_QUANTISING = ("QuantizeLinear", "DequantizeLinear")


def with_signed_maps(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a QDQ model whose tensors of uint8 are of int8; None if it has none.

    Each value and each zero point is less by 128, so that all stand for the same numbers as before.

    model: real at its ends: what it reads and returns stays as it is.
    """
    signed = onnx.ModelProto()
    signed.CopyFrom(model)
    graph = signed.graph
    zeros = {n.input[2] for n in graph.node if n.op_type in _QUANTISING and len(n.input) > 2}
    changed = False
    for each in graph.initializer:
        if each.name in zeros and each.data_type == onnx.TensorProto.UINT8:
            array = numpy_helper.to_array(each).astype(np.int16) - _SHIFT
            each.CopyFrom(numpy_helper.from_array(array.astype(np.int8), each.name))
            changed = True
    del graph.value_info[:]  # which may tell the types of before
    return signed if changed else None
