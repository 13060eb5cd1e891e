"""Rewrite operators of ONNX Runtime's own domain as standard ones.

Its optimiser saves models with fused nodes: convolution and activation, product and factor, sum and
normalisation. Our later passes fuse these themselves. The semantics are those of ONNX Runtime's
documentation (docs/ContribOperators.md), and were compared with its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import onnx

from neocpu.frontend.expansions.writer import Writer, prefixed, refusal
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.opsets.opset_raising import raise_opset, without_functions
from neocpu.frontend.unsupported import STANDARD_DOMAINS, node_name

CONTRIBUTED: Final = "com.microsoft"  # the domain of ONNX Runtime's own operators
_OPSET: Final = 21  # the first opset that has all operators that are written here
_EPSILON: Final = 1e-12  # the default epsilon of normalisations of sums, added to a variance
_EPSILON_ALONE: Final = 1e-5  # the default epsilon of SimplifiedLayerNormalization


def _scalar(w: Writer, value: float, like: str) -> str:
    return w.op("CastLike", w.const(np.float32(value)), like)


def _sum(w: Writer, *inputs: str) -> str:
    total, *others = filter(None, inputs)
    for other in others:
        total = w.op("Add", total, other)
    return total


def _gelu(w: Writer, **attributes: str) -> None:
    w.make("Gelu", _sum(w, w.input(0), w.input(1)), **attributes)


def _quick_gelu(w: Writer) -> None:
    x = w.input(0)
    alpha = _scalar(w, float(w.attribute("alpha", 1.702)), x)
    w.make("Mul", x, w.op("Sigmoid", w.op("Mul", x, alpha)))


def _matmul(w: Writer) -> None:
    """Multiply matrices; the batch may be the second dimension, and matrices be transposed."""
    operands = []
    for place, name in enumerate("AB"):
        operand = w.input(place)
        if w.attribute(f"transBatch{name}", 0):
            operand = w.op("Einsum", operand, equation="i...j->...ij")
        if w.attribute(f"trans{name}", 0):
            operand = w.op("Einsum", operand, equation="...ij->...ji")
        operands.append(operand)
    alpha = float(w.attribute("alpha", 1.0))
    if alpha == 1.0:
        w.make("MatMul", *operands)
        return
    product = w.op("MatMul", *operands)
    w.make("Mul", product, _scalar(w, alpha, product))


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


def _activated(w: Writer, value: str, parameters: Mapping[str, float]) -> None:
    """Write the activation that a node names, with those of its parameters that are present."""
    kind = w.attribute("activation", "")
    if kind and kind not in _PARAMETERS:
        raise ValueError(f"its activation '{kind}' is not supported")
    given = {name: each for name, each in parameters.items() if name in _PARAMETERS.get(kind, ())}
    if kind == "Clip":
        if len(given) < 2:
            raise ValueError("its activation 'Clip' lacks its two bounds")
        w.make("Clip", value, *(_scalar(w, given[name], value) for name in _PARAMETERS["Clip"]))
    else:
        w.make(kind or "Identity", value, **given)


def _gemm(w: Writer) -> None:
    names = ("alpha", "beta", "transA", "transB")
    product = w.op("Gemm", *w.node.input, **_chosen(w, names))
    given = {name: w.attribute(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")}
    _activated(w, product, {name: each for name, each in given.items() if each is not None})


def _conv(w: Writer) -> None:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    inputs = [w.input(0), w.input(1), *filter(None, [w.input(2)])]
    product = w.op("Conv", *inputs, **_chosen(w, names))
    parameters = _PARAMETERS.get(w.attribute("activation", ""), ())
    given = dict(zip(parameters, w.attribute("activation_params", []), strict=False))
    _activated(w, _sum(w, product, w.input(3)), given)


def _chosen(w: Writer, names: Sequence[str]) -> dict[str, Any]:
    return {name: each for name, each in attributes_of(w.node).items() if name in names}


def _skip_layer_norm(w: Writer) -> None:
    total = _skipped(w, w.input(4))
    others = [w.output(1), w.output(2)]
    while others and not others[-1]:
        others.pop()
    inputs = [total, w.input(2), *filter(None, [w.input(3)])]
    epsilon = float(w.attribute("epsilon", _EPSILON))
    w.make("LayerNormalization", *inputs, others=others, axis=-1, epsilon=epsilon)


def _skip_root_mean_square_norm(w: Writer) -> None:
    total = _skipped(w, w.input(3))
    _root_mean_square(w, total, w.input(2), _EPSILON, inverse=w.output(2))


def _root_mean_square_norm(w: Writer) -> None:
    if (axis := w.attribute("axis", -1)) != -1:
        raise ValueError(f"its axis is {axis}; only -1, the last one, is supported")
    _root_mean_square(w, w.input(0), w.input(1), _EPSILON_ALONE, inverse=w.output(1))


def _skipped(w: Writer, bias: str) -> str:
    """Return the sum of two inputs and a bias; it is the fourth output, if there is one."""
    total = _sum(w, w.input(0), w.input(1), bias)
    return w.op("Identity", total, output=w.output(3)) if w.output(3) else total


def _root_mean_square(w: Writer, data: str, scale: str, least: float, *, inverse: str) -> None:
    mean = w.op("ReduceMean", w.op("Mul", data, data), w.const(np.array([-1])), keepdims=1)
    epsilon = _scalar(w, float(w.attribute("epsilon", least)), data)
    root = w.op("Sqrt", w.op("Add", mean, epsilon))
    if inverse:
        w.op("Reciprocal", root, output=inverse)
    w.make("Mul", w.op("Div", data, root), scale)


def _integer_matmul(w: Writer) -> None:
    first, second, *scales = (w.input(place) for place in range(4))
    _scaled_product(w, [first, second, w.input(4), w.input(5)], scales, w.input(6))


def _dynamic_matmul(w: Writer) -> None:
    scale, zero = (f"{w.output(0)}_{what}_{w.prefix}" for what in ("scale", "zero"))
    stored = w.op("DynamicQuantizeLinear", w.input(0), others=[scale, zero])
    given = [stored, w.input(1), zero, w.input(3)]
    _scaled_product(w, given, [scale, w.input(2)], w.input(4))


def _scaled_product(w: Writer, given: list[str], scales: Sequence[str], bias: str) -> None:
    while not given[-1]:
        given.pop()
    whole = w.op("Cast", w.op("MatMulInteger", *given), to=onnx.TensorProto.FLOAT)
    scaled = w.op("Mul", whole, w.op("Mul", *scales))
    w.make("Add", scaled, bias) if bias else w.make("Identity", scaled)


def _standard(w: Writer) -> None:
    w.make(w.node.op_type, *w.node.input, **attributes_of(w.node))


_WRITTEN: Final[Mapping[str, Callable[[Writer], None]]] = {
    "BiasGelu": _gelu,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": partial(_gelu, approximate="tanh"),
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "GridSample": _standard,
    "MatMulIntegerToFloat": _integer_matmul,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _root_mean_square_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square_norm,
    "TransposeMatMul": _matmul,
    "Trilu": _standard,
}

_UNDER_ONNX: Final = ("SimplifiedLayerNormalization",)
"""Operators that ONNX Runtime writes into the standard domain, which does not define them."""


def expand_contributed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without control flow with such operators rewritten, in place or in a newer
    opset.

    Raises an `UnsupportedError` if an operator has a form that is not supported, or the model
    cannot be raised.
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
    prefix = prefixed(graph, "contributed_")
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


def _expanded(node: onnx.NodeProto, graph: onnx.GraphProto, prefix: str) -> list[onnx.NodeProto]:
    writer = Writer(prefix, node_name(node), node=node)
    try:
        _WRITTEN[node.op_type](writer)
    except ValueError as error:
        raise refusal(node, error) from error
    made = {name for each in writer.nodes for name in each.output}
    if lacking := [name for name in node.output if name and name not in made]:
        raise refusal(node, f"'{lacking[0]}' is not supported")
    graph.initializer.extend(writer.tensors)
    return writer.nodes
