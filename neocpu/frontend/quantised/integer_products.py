"""Rewrite products of integers as products of the same numbers in float32, which has kernels.

Dynamic quantisation writes ConvInteger and MatMulInteger, which sum products of integers whose zero
points are computed at run time. Integers up to 2^24 are exact in float32, and so are their sums, in
any order. Larger ones are mostly rounded anyway, by the Cast to float32 that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.subgraphs import graphs_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rewrites import optional_input
from neocpu.frontend.unsupported import STANDARD_DOMAINS

_WHOLE_BELOW: Final = 2**24
_LARGEST: Final = 255  # the largest distance of an 8-bit number from its zero point


@dataclass(frozen=True, slots=True)
class _Product:
    """An operator on real numbers, its weights' axis of zero points, and the axes summed over."""

    real: str
    axis: int
    summed: tuple[int, ...]


INTEGER_PRODUCTS: Final[Mapping[str, _Product]] = {
    "ConvInteger": _Product("Conv", 0, (1, 2, 3)),
    "MatMulInteger": _Product("MatMul", -1, (-2,)),
}
"""The products, by the operators on integers."""


def expand_integer_products(graph: onnx.GraphProto) -> None:
    """Rewrite the products of a graph of a current opset, in place.

    Those of two computed tensors or with zero points by row stay, and those whose sums may exceed
    2^24 and are read as integers; all in a graph with branches, as these may read any of its
    tensors.
    """
    if any(map(graphs_of, graph.node)):
        return
    known = _Known(graph)
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(graph.node):
        nodes += known.expanded(node, f"_{index}") if known.is_real(node) else [node]
    del graph.node[:]
    graph.node.extend(nodes)


class _Known:
    """Facts about a graph's tensors that are known before it runs."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph, self._constants = graph, constant_tensors(graph)
        self._readers = Counter(name for node in graph.node for name in node.input)
        self._readers.update(output.name for output in graph.output)
        self._in_float = Counter(node.input[0] for node in graph.node if _is_to_float(node))
        self._single = {
            node.output[2]
            for node in graph.node
            if node.op_type == "DynamicQuantizeLinear" and node.output[2:]
        }

    def is_real(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is a product that float32 computes well enough for all data."""
        product = INTEGER_PRODUCTS.get(node.op_type)
        if product is None or node.domain not in STANDARD_DOMAINS:
            return False
        stored = self._constants.get(node.input[1])
        if stored is not None and stored.data_type not in (TensorProto.INT8, TensorProto.UINT8):
            return False  # ONNX does not allow it; the checker names the operator
        weights, zero = self._integers(node.input[1]), self._zero(node)
        if weights is None or zero is None or not self._is_single(optional_input(node.input, 2)):
            return False
        if not -weights.ndim <= min(product.summed) <= max(product.summed) < weights.ndim:
            return False  # a vector, or not two spatial dimensions
        if zero.ndim > 1 or zero.size not in (1, weights.shape[product.axis]):
            return False
        return self._is_read_as_real(node) or self._is_exact(node)

    def expanded(self, node: onnx.NodeProto, suffix: str) -> list[onnx.NodeProto]:
        """Return the same product of real numbers, between conversions."""
        product, result = INTEGER_PRODUCTS[node.op_type], node.output[0]
        made: list[onnx.NodeProto] = []
        operands = []
        point = optional_input(node.input, 2)
        subtracts = bool(point) and point not in self._constants and self._can_subtract(node)
        for place in (0, 1):
            name, zero = node.input[place], optional_input(node.input, place + 2)
            if place == 0 and subtracts:
                zero = ""
            one, real = (f"{name}_{kind}{suffix}_{place}" for kind in ("one", "real"))
            ones = np.ones(self._constants[zero].dims if zero in self._constants else (), "float32")
            self._graph.initializer.append(numpy_helper.from_array(ones, one))
            inputs = [name, one, *([zero] if zero else [])]
            axis = product.axis if place else 0
            made.append(helper.make_node("DequantizeLinear", inputs, [real], axis=axis))
            operands.append(real)
        attributes = attributes_of(node)
        in_float = self._is_read_as_real(node)
        sums = result if in_float else f"{result}_real{suffix}"
        whole = f"{sums}_all{suffix}" if subtracts else sums
        made.append(helper.make_node(product.real, operands, [whole], name=node.name, **attributes))
        if subtracts:
            made += self._without_zero(node, whole, sums, suffix)
        if not in_float:  # else rounding errors could turn 2.9999 into 2
            made.append(helper.make_node("Round", [sums], [f"{sums}_whole"]))
            cast = helper.make_node("Cast", [f"{sums}_whole"], [result], to=TensorProto.INT32)
            made.append(cast)
        return made

    def _without_zero(
        self, node: onnx.NodeProto, whole: str, result: str, suffix: str
    ) -> list[onnx.NodeProto]:
        """Return nodes that subtract the data's zero point times the weights from a product."""
        columns = self._centred(node).sum(axis=-2).astype(np.float32)
        names = [f"{result}_{kind}{suffix}" for kind in ("columns", "point", "moved")]
        self._graph.initializer.append(numpy_helper.from_array(columns, names[0]))
        return [
            helper.make_node("Cast", [node.input[2]], [names[1]], to=TensorProto.FLOAT),
            helper.make_node("Mul", [names[1], names[0]], [names[2]]),
            helper.make_node("Sub", [whole, names[2]], [result]),
        ]

    def _can_subtract(self, node: onnx.NodeProto) -> bool:
        """Return whether the zero point's share can be subtracted later, because sums are exact."""
        is_matrix = INTEGER_PRODUCTS[node.op_type].real == "MatMul"
        return is_matrix and self._centred(node).ndim == 2 and self._is_exact(node)

    def _centred(self, node: onnx.NodeProto) -> NDArray[Any]:
        """Return the weights minus their zero points; all are constants."""
        weights, zero = self._integers(node.input[1]), self._zero(node)
        assert weights is not None
        assert zero is not None
        spread = [1] * weights.ndim
        spread[INTEGER_PRODUCTS[node.op_type].axis] = zero.size
        centred: NDArray[Any] = weights - zero.reshape(spread)
        return centred

    def _is_exact(self, node: onnx.NodeProto) -> bool:
        """Return whether the sums are exact in float32, whatever the data."""
        summed = INTEGER_PRODUCTS[node.op_type].summed
        sums = np.abs(self._centred(node)).sum(axis=summed)
        return int(sums.max(initial=0)) * _LARGEST < _WHOLE_BELOW

    def _is_read_as_real(self, node: onnx.NodeProto) -> bool:
        return self._in_float[node.output[0]] == self._readers[node.output[0]]

    def _integers(self, name: str) -> NDArray[Any] | None:
        tensor = self._constants.get(name)
        return None if tensor is None else array_of(tensor).astype(np.int64)

    def _zero(self, node: onnx.NodeProto) -> NDArray[Any] | None:
        """Return the weights' zero points; None if they are computed."""
        name = optional_input(node.input, 3)
        return self._integers(name) if name else np.zeros((), np.int64)

    def _is_single(self, zero: str) -> bool:
        known = self._integers(zero)
        return not zero or zero in self._single or (known is not None and known.size == 1)


def _is_to_float(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and any(
        each.name == "to" and each.i == TensorProto.FLOAT for each in node.attribute
    )
