"""Writing a quantised model in ONNX's form: QuantizeLinear, DequantizeLinear around operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.subgraphs import all_names
from neocpu.quantiser.float_graph import FloatGraph, Layer
from neocpu.quantiser.ranges import Array
from neocpu.quantiser.stored_tensors import Stored

_BITS: Final[Mapping[int, type[np.unsignedinteger]]] = {8: np.uint8, 16: np.uint16}


@dataclass(frozen=True, slots=True)
class TensorGrid:
    """The meaning of a tensor's unsigned integers of ``bits``: ``(stored - zero) * scale``."""

    scale: float
    zero: int
    bits: int = 8

    @property
    def levels(self) -> int:
        return int(2**self.bits - 1)


@dataclass(frozen=True, slots=True, eq=False)
class StoredLayer:
    weights: Stored
    bias: Array | None  # in float32; the file has multiples of the operands' scales


def write_qdq(
    graph: FloatGraph, grids: Mapping[str, TensorGrid], layers: Mapping[str, StoredLayer]
) -> onnx.ModelProto:
    """Return the quantised model, with these layers in integers, by the names of their results."""
    return _Writer(graph, grids).write(layers)


class _Writer:
    def __init__(self, graph: FloatGraph, grids: Mapping[str, TensorGrid]) -> None:
        self._graph, self._grids = graph, grids
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(graph.proto)
        self._arrays: dict[str, Array] = {}
        self._real: dict[str, str] = {}
        inner = graph.proto.graph
        self._names = FreshNames((*all_names(inner), *(node.name for node in inner.node)))

    def write(self, layers: Mapping[str, StoredLayer]) -> onnx.ModelProto:
        graph = self._proto.graph
        own = {layer.result: layer for layer in self._graph.layers}
        nodes = list(graph.node)
        del graph.node[:]
        for value in graph.input:
            graph.node.extend(self._around(value.name))
        for node in nodes:
            layer = own.get(node.output[0])
            if layer is not None and layer.result in layers:
                graph.node.extend(self._weights(node, layer, layers[layer.result]))
            for place, name in enumerate(node.input):
                node.input[place] = self._real.get(name, name)
            graph.node.append(node)
            for name in node.output:
                graph.node.extend(self._around(name))
        read = {name for node in graph.node for name in node.input}
        kept = [each for each in graph.initializer if each.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in self._arrays.items())
        return self._proto

    def _around(self, name: str) -> list[onnx.NodeProto]:
        grid = self._grids.get(name)
        if grid is None:
            return []
        fresh = self._names.fresh
        parts = ("scale", "zero_point", "quantized", "dequantized", "quantize", "dequantize")
        scale, zero, stored, real, down, up = (fresh(f"{name}_{part}") for part in parts)
        self._arrays[scale] = np.array(grid.scale, np.float32)
        self._arrays[zero] = np.array(grid.zero, _BITS[grid.bits])
        self._real[name] = real
        return [
            helper.make_node("QuantizeLinear", [name, scale, zero], [stored], down),
            helper.make_node("DequantizeLinear", [stored, scale, zero], [real], up),
        ]

    def _weights(
        self, node: onnx.NodeProto, layer: Layer, numbers: StoredLayer
    ) -> list[onnx.NodeProto]:
        stored = numbers.weights
        values = np.ascontiguousarray(layer.as_stored(stored.values))
        prefix = f"{layer.result}_weights"
        made = [self._dequantised(prefix, values, stored.scale, layer.weight_axis)]
        node.input[1] = made[0].output[0]
        if numbers.bias is None:
            return made
        while len(node.input) < 3:
            node.input.append("")
        grid = self._grids.get(layer.data)
        if grid is None:  # without a grid of the data, sums are real numbers
            node.input[2] = self._names.fresh(f"{layer.result}_bias")
            self._arrays[node.input[2]] = numbers.bias.astype(np.float32)
        else:
            unit = np.broadcast_to(stored.scale * np.float32(grid.scale), numbers.bias.shape)
            limit = np.iinfo(np.int32)
            whole = np.rint(numbers.bias.astype(np.float64) / unit)
            whole = np.clip(whole, limit.min, limit.max).astype(np.int32)
            made.append(self._dequantised(f"{layer.result}_bias", whole, unit, 0))
            node.input[2] = made[1].output[0]
        return made

    def _dequantised(self, name: str, values: Array, scale: Array, axis: int) -> onnx.NodeProto:
        scale = scale.reshape(()) if scale.size == 1 and values.ndim > 1 else scale
        parts = ("quantized", "scale", "zero_point", "dequantized", "dequantize")
        *names, made, node = (self._names.fresh(f"{name}_{part}") for part in parts)
        zero = np.zeros(scale.shape, values.dtype)
        self._arrays.update(zip(names, (values, scale.astype(np.float32), zero), strict=True))
        return helper.make_node("DequantizeLinear", names, [made], node, axis=axis)
