"""Rewrite operators on quantised numbers as operators on real ones, between dequantisations.

Quantisers such as ONNX Runtime's write the QOperator form, which is equivalent to the QDQ form:
dequantise the operands, compute, quantise the result. Later passes support only the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import onnx
from onnx import helper

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.expansions.contributed_operators import CONTRIBUTED
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.subgraphs import called_operators
from neocpu.frontend.opsets.opset_raising import raise_opset
from neocpu.frontend.quantised.integer_products import INTEGER_PRODUCTS, expand_integer_products
from neocpu.frontend.rewrites import optional_input, uses
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_OPSET: Final = 21
"""The first opset with scales along an axis and 16-bit integers in the standard domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The positions of an operator's operands, scales and zero points among its inputs."""

    op: str  # the operator on real numbers
    operands: tuple[int, ...]  # followed by a scale and a zero point each
    result: int | None  # its scale, followed by a zero point; both may be missing if ``real``
    bias: int | None = None  # its scale is the product of the operands'
    before: tuple[int, ...] = ()  # inputs that are not quantised, and come first
    # Returns the axis of the scales of an operand, from the attributes and its number.
    axes: Callable[[Mapping[str, object], int], int] = field(default=lambda attributes, number: 0)
    dropped: tuple[str, ...] = ()  # attributes that ``op`` lacks
    real: bool = False

    def needed(self) -> Iterator[int]:
        yield from self.before
        for place in self.operands:
            yield from (place, place + 1)
        if self.result is not None and not self.real:
            yield self.result


def _gemm_axis(attributes: Mapping[str, object], number: int) -> int:
    return 0 if number == 1 and attributes.get("transB") else 1


_FORMS: Final[Mapping[str, _Form]] = {
    "QLinearConv": _Form(op="Conv", operands=(0, 3), result=6, bias=8, dropped=("channels_last",)),
    # Scales are by row of the first operand, or by column of the second.
    "QLinearMatMul": _Form(
        op="MatMul", operands=(0, 3), result=6, axes=lambda _, number: -1 if number else -2
    ),
    "QGemm": _Form(op="Gemm", operands=(0, 3), result=7, bias=6, axes=_gemm_axis, real=True),
    "QLinearAdd": _Form(op="Add", operands=(0, 3), result=6),
    "QLinearMul": _Form(op="Mul", operands=(0, 3), result=6),
    "QLinearAveragePool": _Form(
        op="AveragePool", operands=(0,), result=3, dropped=("channels_last",)
    ),
    "QLinearGlobalAveragePool": _Form(
        op="GlobalAveragePool", operands=(0,), result=3, dropped=("channels_last",)
    ),
    "QLinearLeakyRelu": _Form(op="LeakyRelu", operands=(0,), result=3),
    "QLinearSigmoid": _Form(op="Sigmoid", operands=(0,), result=3),
    "QLinearSoftmax": _Form(op="Softmax", operands=(0,), result=3, dropped=("opset",)),
    "QLinearWhere": _Form(op="Where", operands=(1, 4), result=7, before=(0,)),
}


_QUANTISED_NAMES: Final = ("Quantize", "Dequantize", "QLinear", "QGemm", "QAttention", "Integer")
"""Words in the names of operators on quantised numbers, standard ones and ONNX Runtime's own."""


def is_quantised(model: onnx.ModelProto) -> bool:
    """Return whether the model has operators on quantised numbers, of ONNX or ONNX Runtime."""
    return any(
        word in node.op_type for node in called_operators(model) for word in _QUANTISED_NAMES
    )


def expand_quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model in QDQ form, changed in place or raised to a newer opset.

    One with functions of its own is not changed. A lacking operand or scale is a `ModelError`;
    channels last, or a model that cannot be raised, is an `UnsupportedError`.
    """
    graph, nodes = model.graph, []
    changed = uses(model, *INTEGER_PRODUCTS)
    for index, node in enumerate(graph.node):
        expanded = _expanded(node, f"_{index}")
        changed |= expanded != [node]
        nodes += expanded
    if not changed:
        return model
    del graph.node[:]
    graph.node.extend(nodes)
    raised = raise_opset(model, _OPSET)
    expand_integer_products(raised.graph)
    return raised


def _expanded(node: onnx.NodeProto, suffix: str) -> list[onnx.NodeProto]:
    if node.domain == CONTRIBUTED and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        renamed.domain = ""
        return [renamed]
    if node.domain not in (*STANDARD_DOMAINS, CONTRIBUTED):
        return [node]
    if node.op_type in INTEGER_PRODUCTS:  # rewritten after the model is raised, which needs them
        _require(node, (0, 1))
    if node.op_type == "QLinearConcat":
        return _concat(node, suffix)
    form = _FORMS.get(node.op_type)
    return [node] if form is None else _around(node, form, suffix)


def _around(node: onnx.NodeProto, form: _Form, suffix: str) -> list[onnx.NodeProto]:
    """Return the operator on real numbers, with the conversions around it."""
    _require(node, form.needed())
    attributes = attributes_of(node)
    if attributes.get("channels_last"):
        raise UnsupportedError(f"{describe(node)} has channels last; export it in NCHW")
    made: list[onnx.NodeProto] = []
    inputs = [node.input[place] for place in form.before]
    for number, place in enumerate(form.operands):
        axis = form.axes(attributes, number)
        inputs.append(_dequantised(made, _three(node.input, place), axis, f"{suffix}_{number}"))
    bias = optional_input(node.input, form.bias)
    if bias:
        scale = f"{bias}_scale{suffix}"
        scales = [node.input[place + 1] for place in form.operands]
        made.append(helper.make_node("Mul", scales, [scale]))
        inputs.append(_dequantised(made, [bias, scale, ""], 0, suffix))
    kept = {k: v for k, v in attributes.items() if k not in form.dropped}
    quantises = bool(optional_input(node.input, form.result))
    result = f"{node.output[0]}_real{suffix}" if quantises else node.output[0]
    made.append(helper.make_node(form.op, inputs, [result], name=node.name, **kept))
    if quantises:
        assert form.result is not None
        made.append(_quantised(result, _two(node.input, form.result), node.output[0]))
    return made


def _concat(node: onnx.NodeProto, suffix: str) -> list[onnx.NodeProto]:
    made: list[onnx.NodeProto] = []
    places = range(2, max(len(node.input), 3), 3)
    _require(node, (0, *places, *(place + 1 for place in places)))
    parts = [
        _dequantised(made, _three(node.input, place), 0, f"{suffix}_{place}") for place in places
    ]
    result = f"{node.output[0]}_real{suffix}"
    concat = helper.make_node("Concat", parts, [result], name=node.name)
    concat.attribute.extend(node.attribute)
    return [*made, concat, _quantised(result, _two(node.input, 0), node.output[0])]


def _require(node: onnx.NodeProto, places: Iterable[int]) -> None:
    for place in places:
        if not optional_input(node.input, place):
            raise ModelError(f"{describe(node)} lacks its input {place}")


def _dequantised(made: list[onnx.NodeProto], inputs: Sequence[str], axis: int, suffix: str) -> str:
    name = f"{inputs[0]}_real{suffix}"
    made.append(helper.make_node("DequantizeLinear", _trimmed(inputs), [name], axis=axis))
    return name


def _quantised(value: str, scale_and_zero: Sequence[str], name: str) -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", _trimmed([value, *scale_and_zero]), [name])


def _three(inputs: Sequence[str], place: int) -> list[str]:
    return [inputs[place], *_two(inputs, place + 1)]


def _two(inputs: Sequence[str], place: int) -> list[str]:
    return [inputs[place], optional_input(inputs, place + 1)]


def _trimmed(inputs: Sequence[str]) -> list[str]:
    return list(inputs) if inputs[-1] else list(inputs[:-1])
