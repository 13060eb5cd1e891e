"""Rewrite operators of ONNX Runtime's own domain as standard ones.

Its optimiser saves models with fused nodes: convolution and activation, product and factor, sum and
normalisation. Our later passes fuse these themselves. The semantics are those of ONNX Runtime's
documentation (docs/ContribOperators.md), and were compared with its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.opsets.opset_raising import raise_opset, without_functions
from neocpu.frontend.rewrites import optional_input
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe, node_name

CONTRIBUTED: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

_OPSET: Final = 21
"""The first opset that has all operators that are written here."""

_EPSILON: Final = 1e-12
"""The default epsilon of normalisations of sums, added to a variance."""

_EPSILON_ALONE: Final = 1e-5
"""The default epsilon of SimplifiedLayerNormalization."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that is written as others.

    Attributes
    ----------
    writer : NodeWriter
    inputs : sequence of str
        The inputs' names; empty for those that are left out, also at the end.
    outputs : sequence of str
    attributes : mapping
    """

    writer: NodeWriter
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]

    def input(self, place: int) -> str:
        """Return the name of an input; an empty one if it is left out."""
        return optional_input(self.inputs, place)

    def output(self, place: int) -> str:
        """Return the name of an output; an empty one if it is left out."""
        return optional_input(self.outputs, place)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Write a node; return the name of its output."""
        return self.writer.op(op_type, *inputs, **attributes)

    def make(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Write the node that makes the first output."""
        self.op(op_type, *inputs, output=self.output(0), **attributes)

    def scalar(self, value: float, like: str) -> str:
        """Return a constant scalar of another tensor's element type."""
        return self.op("CastLike", self.writer.const(np.float32(value)), like)

    def sum(self, *inputs: str) -> str:
        """Return the sum of the inputs that are not left out."""
        total, *others = (name for name in inputs if name)
        for other in others:
            total = self.op("Add", total, other)
        return total


def _gelu(node: _Node) -> None:
    node.make("Gelu", node.sum(node.input(0), node.input(1)))


def _fast_gelu(node: _Node) -> None:
    node.make("Gelu", node.sum(node.input(0), node.input(1)), approximate="tanh")


def _quick_gelu(node: _Node) -> None:
    x = node.input(0)
    alpha = node.scalar(float(node.attributes.get("alpha", 1.702)), x)
    node.make("Mul", x, node.op("Sigmoid", node.op("Mul", x, alpha)))


def _matmul(node: _Node) -> None:
    """Multiply matrices; the batch may be the second dimension, and matrices be transposed."""
    operands = []
    for place, name in enumerate("AB"):
        operand = node.input(place)
        if node.attributes.get(f"transBatch{name}"):
            operand = node.op("Einsum", operand, equation="i...j->...ij")
        if node.attributes.get(f"trans{name}"):
            operand = node.op("Einsum", operand, equation="...ij->...ji")
        operands.append(operand)
    alpha = float(node.attributes.get("alpha", 1.0))
    if alpha == 1.0:
        node.make("MatMul", *operands)
        return
    product = node.op("MatMul", *operands)
    node.make("Mul", product, node.scalar(alpha, product))


_NUMBERS: Final = ("alpha", "beta", "gamma")

_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Clip": ("low", "high"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""The parameters of each activation, in order."""


def _activated(node: _Node, value: str, parameters: Mapping[str, float]) -> None:
    """Write the activation that a node names, with those of its parameters that are present."""
    kind = node.attributes.get("activation", b"").decode()
    if kind and kind not in _PARAMETERS:
        raise ValueError(f"its activation '{kind}' is not supported")
    given = {name: each for name, each in parameters.items() if name in _PARAMETERS.get(kind, ())}
    if kind == "Clip":
        if len(given) < 2:
            raise ValueError("its activation 'Clip' lacks its two bounds")
        low, high = (node.scalar(given[name], value) for name in _PARAMETERS["Clip"])
        node.make("Clip", value, low, high)
    else:
        node.make(kind or "Identity", value, **given)


def _gemm(node: _Node) -> None:
    names = ("alpha", "beta", "transA", "transB")
    product = node.op("Gemm", *node.inputs, **_chosen(node, names))
    given = {name: node.attributes.get(f"activation_{name}") for name in _NUMBERS}
    _activated(node, product, {name: each for name, each in given.items() if each is not None})


def _conv(node: _Node) -> None:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    bias = [node.input(2)] if node.input(2) else []
    product = node.op("Conv", node.input(0), node.input(1), *bias, **_chosen(node, names))
    numbers = node.attributes.get("activation_params", [])
    kind = node.attributes.get("activation", b"").decode()
    given = dict(zip(_PARAMETERS.get(kind, ()), numbers, strict=False))
    _activated(node, node.sum(product, node.input(3)), given)


def _chosen(node: _Node, names: Sequence[str]) -> dict[str, Any]:
    return {name: node.attributes[name] for name in names if name in node.attributes}


def _skip_layer_norm(node: _Node) -> None:
    total = _skipped(node, node.input(4))
    scale, shift = node.input(2), node.input(3)
    others = [node.output(1), node.output(2)]
    while others and not others[-1]:
        others.pop()
    node.make(
        "LayerNormalization",
        total,
        scale,
        *([shift] if shift else []),
        others=others,
        axis=-1,
        epsilon=float(node.attributes.get("epsilon", _EPSILON)),
    )


def _skip_root_mean_square_norm(node: _Node) -> None:
    total = _skipped(node, node.input(3))
    _root_mean_square(node, total, node.input(2), _EPSILON, inverse=node.output(2))


def _root_mean_square_norm(node: _Node) -> None:
    if node.attributes.get("axis", -1) != -1:
        raise ValueError("its axis is not -1")
    _root_mean_square(node, node.input(0), node.input(1), _EPSILON_ALONE, inverse=node.output(1))


def _skipped(node: _Node, bias: str) -> str:
    """Return the sum of two inputs and a bias; it is the fourth output, if there is one."""
    total = node.sum(node.input(0), node.input(1), bias)
    return node.op("Identity", total, output=node.output(3)) if node.output(3) else total


def _root_mean_square(node: _Node, data: str, scale: str, least: float, *, inverse: str) -> None:
    last = node.writer.const(np.array([-1]))
    mean = node.op("ReduceMean", node.op("Mul", data, data), last, keepdims=1)
    epsilon = node.scalar(float(node.attributes.get("epsilon", least)), data)
    root = node.op("Sqrt", node.op("Add", mean, epsilon))
    if inverse:
        node.op("Reciprocal", root, output=inverse)
    node.make("Mul", node.op("Div", data, root), scale)


def _integer_matmul(node: _Node) -> None:
    first, second, *scales = (node.input(place) for place in range(4))
    zeros = [node.input(4), node.input(5)]
    _scaled_product(node, [first, second], zeros, scales, node.input(6))


def _dynamic_matmul(node: _Node) -> None:
    scale, zero = (f"{node.output(0)}_{what}_{node.writer.prefix}" for what in ("scale", "zero"))
    stored = node.op("DynamicQuantizeLinear", node.input(0), others=[scale, zero])
    zeros = [zero, node.input(3)]
    scales = [scale, node.input(2)]
    _scaled_product(node, [stored, node.input(1)], zeros, scales, node.input(4))


def _scaled_product(
    node: _Node,
    operands: Sequence[str],
    zeros: Sequence[str],
    scales: Sequence[str],
    bias: str,
) -> None:
    given = [*operands, *zeros]
    while not given[-1]:
        given.pop()
    whole = node.op("Cast", node.op("MatMulInteger", *given), to=onnx.TensorProto.FLOAT)
    scaled = node.op("Mul", whole, node.op("Mul", *scales))
    node.make("Add", scaled, bias) if bias else node.make("Identity", scaled)


def _standard(op_type: str) -> Callable[[_Node], None]:
    """Return a function that writes the standard operator of the same form."""
    return lambda node: node.make(op_type, *node.inputs, **node.attributes)


_WRITTEN: Final[Mapping[str, Callable[[_Node], None]]] = {
    "BiasGelu": _gelu,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": _fast_gelu,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "GridSample": _standard("GridSample"),
    "MatMulIntegerToFloat": _integer_matmul,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _root_mean_square_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square_norm,
    "TransposeMatMul": _matmul,
    "Trilu": _standard("Trilu"),
}

_UNDER_ONNX: Final = ("SimplifiedLayerNormalization",)
"""Operators that ONNX Runtime writes into the standard domain, which does not define them."""


def expand_contributed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with such operators rewritten, in place or in a copy of a newer opset.

    Parameters
    ----------
    model : onnx.ModelProto
        A model without control flow.

    Raises
    ------
    UnsupportedError
        An operator has a form that is not supported, or the model cannot be raised.
    """
    bodies = (node for function in model.functions for node in function.node)
    if any(map(_is_written, bodies)):
        model = without_functions(model)
    elif not any(map(_is_written, model.graph.node)):
        return model
    for node in filter(_is_written, model.graph.node):
        node.domain = CONTRIBUTED
    if all(each.domain != CONTRIBUTED for each in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(CONTRIBUTED, 1))
    raised = raise_opset(model, _OPSET)
    graph = raised.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = FreshNames(taken).prefix("contributed_")
    nodes: list[onnx.NodeProto] = []
    for number, node in enumerate(graph.node):
        nodes += _expanded(node, graph, f"{prefix}{number}_") if _is_written(node) else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    return raised


def _is_written(node: onnx.NodeProto) -> bool:
    if node.domain in STANDARD_DOMAINS:
        return node.op_type in _UNDER_ONNX
    return node.domain == CONTRIBUTED and node.op_type in _WRITTEN


def _expanded(
    node: onnx.NodeProto, graph: onnx.GraphProto, prefix: str
) -> Sequence[onnx.NodeProto]:
    writer, attributes = NodeWriter(prefix, node_name(node)), attributes_of(node)
    try:
        _WRITTEN[node.op_type](_Node(writer, node.input, node.output, attributes))
    except ValueError as error:
        raise UnsupportedError(f"cannot compile {describe(node)}: {error}") from error
    made = {name for each in writer.nodes for name in each.output}
    if lacking := [name for name in node.output if name and name not in made]:
        raise UnsupportedError(f"cannot compile {describe(node)}: '{lacking[0]}' is not supported")
    graph.initializer.extend(writer.tensors)
    return writer.nodes
