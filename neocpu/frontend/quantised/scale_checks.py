"""Refuse scales and zero points that are meaningless, and name their node."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import onnx

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_SCALED: Final = ("QuantizeLinear", "DequantizeLinear")


def refuse_scales(graph: onnx.GraphProto) -> None:
    """Raise a `ModelError` for meaningless constant scales or zero points of a graph in QDQ form.

    Scales are above 0 and finite, and as many as zero points. Scales for blocks of a tensor that is
    not constant are an `UnsupportedError`.
    """
    nodes = [n for n in graph.node if n.domain in STANDARD_DOMAINS and n.op_type in _SCALED]
    if not nodes:
        return
    constants = constant_tensors(graph)
    for node in nodes:
        scale = constants.get(node.input[1])
        if scale is not None:
            _check_scale(node, array_of(scale).astype(np.float64))
        zero = constants.get(node.input[2]) if len(node.input) > 2 else None
        if scale is not None and zero is not None and list(scale.dims) != list(zero.dims):
            many = " of ".join(str(math.prod(each.dims)) for each in (zero, scale))
            if math.prod(zero.dims) != math.prod(scale.dims):
                raise ModelError(f"{describe(node)} has zero points and scales that differ: {many}")
        blocks = any(a.name == "block_size" and a.i for a in node.attribute)
        if blocks and node.input[0] not in constants:
            raise UnsupportedError(f"{describe(node)} has a scale for each block of its data")


def _check_scale(node: onnx.NodeProto, scale: np.ndarray[Any, Any]) -> None:
    wrong = ~(np.isfinite(scale) & (scale > 0))
    if wrong.any():
        found, place = scale.reshape(-1), int(wrong.reshape(-1).argmax())
        where = f" {place} of {found.size}" if found.size > 1 else ""
        raise ModelError(
            f"{describe(node)} has scale{where} {found[place]:g}; scales are above 0 and finite: "
            "quantise the model again, with calibration data in which this tensor is not constant"
        )
