"""Cross-layer equalisation: channels of neighbouring layers get similar ranges.

If only a ReLU is between two layers, a channel may be divided by any positive factor, provided that
the next layer's weights are multiplied by it. With one scale for all channels, the best factor
makes both ranges equal: ``sqrt(r1 / r2)`` (Nagel et al., "Data-Free Quantization through Weight
Equalization and Bias Correction", ICCV 2019, §4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.quantiser.float_graph import FloatGraph, Layer, readers_of
from neocpu.quantiser.ranges import Array

_ROUNDS: Final = 8
_MOST: Final = 100.0  # the largest factor, because channels that are nearly zero would ask for any


def equalise(graph: FloatGraph) -> FloatGraph:
    arrays = {name: array.copy() for name, array in graph.initializers.items()}
    pairs = list(_pairs(graph))
    for _ in range(_ROUNDS):
        for first, second in pairs:
            _equalise_pair(arrays, first, second)
    if not pairs:
        return graph
    proto = onnx.ModelProto()
    proto.CopyFrom(graph.proto)
    for each in proto.graph.initializer:
        if each.name in arrays:
            each.CopyFrom(numpy_helper.from_array(arrays[each.name], each.name))
    return replace(graph, proto=proto, initializers=arrays)


def _pairs(graph: FloatGraph) -> Iterator[tuple[Layer, Layer]]:
    """Yield pairs of convolutions with only ReLUs in between, whose weights no other node reads."""
    readers = readers_of(graph.proto.graph)
    outputs = {value.name for value in graph.proto.graph.output}
    by_data = {layer.data: layer for layer in graph.layers}
    for first in graph.layers:
        made = first.result
        while len(readers[made]) == 1 and made not in outputs:
            (reader,) = readers[made]
            second = by_data.get(made)
            if second is not None and second.node is reader:
                own = (first.weights, first.bias, second.weights)
                alone = all(name is None or len(readers[name]) == 1 for name in own)
                if alone and first.node.op_type == second.node.op_type == "Conv":
                    yield first, second
                break
            if reader.op_type != "Relu":
                break
            made = reader.output[0]


def _equalise_pair(arrays: dict[str, Array], first: Layer, second: Layer) -> None:
    before, after = arrays[first.weights], arrays[second.weights]
    channels = len(before)
    made = np.abs(before).reshape(channels, -1).max(axis=1)
    by_group = after.shape[1] == 1 and channels > 1  # depthwise: the output channel is the input's
    if not by_group and after.shape[1] != channels:
        return
    read = after if by_group else np.swapaxes(after, 0, 1)
    taken = np.abs(read).reshape(channels, -1).max(axis=1)
    usable = (made > 0) & (taken > 0)
    ratio = np.sqrt(np.where(usable, made, 1) / np.where(usable, taken, 1))
    # A common factor of all channels would only move the range from one layer to the other.
    factor = np.clip(ratio / np.exp(np.log(ratio).mean()), 1 / _MOST, _MOST).astype(np.float32)
    arrays[first.weights] = before / factor.reshape(-1, 1, 1, 1)
    if first.bias is not None:
        arrays[first.bias] = arrays[first.bias] / factor
    spread = factor.reshape(-1, 1, 1, 1)
    multiplied = read * spread
    found = multiplied if by_group else np.swapaxes(multiplied, 0, 1)
    arrays[second.weights] = np.ascontiguousarray(found, np.float32)
