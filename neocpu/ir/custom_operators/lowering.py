"""The types of a custom operator's outputs, and the Relax calls that compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import onnx
from onnx import helper, numpy_helper
from tvm import relax, te, tirx

from neocpu.foundation.foreign_code import foreign_code
from neocpu.ir.custom_operators.custom_operator import CustomOperator
from neocpu.ir.expressions import OPAQUE


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type by its numpy name, and a static shape."""

    dtype: str
    shape: tuple[int, ...]


_Built: TypeAlias = Sequence[te.Tensor] | tirx.PrimFunc


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes by name: text as str, tensors as arrays."""
    return {each.name: _plain(helper.get_attribute_value(each)) for each in node.attribute}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return [_plain(each) for each in value] if isinstance(value, Sequence) else value


def output_types(
    operator: CustomOperator,
    node: str,
    inputs: Sequence[TensorType | None],
    attributes: Mapping[str, Any],
) -> list[TensorType]:
    """Return the types of the outputs that the operator makes from inputs of these types.

    Raises UnsupportedError if it fails, or makes something other than tensors with static shapes.
    """
    with foreign_code(partial(operator.failure, node)):
        return _types(_built(operator, inputs, attributes), inputs)


def call_operator(
    builder: relax.BlockBuilder,
    operator: CustomOperator,
    node: str,
    inputs: Sequence[relax.Expr | None],
    attributes: Mapping[str, Any],
) -> relax.Expr:
    """Return the call that computes the outputs, a tuple if several, or raise UnsupportedError."""
    types = [None if each is None else _type(each.ty.dtype.dtype, each.ty.shape) for each in inputs]
    present = [each for each in inputs if each is not None]
    with foreign_code(partial(operator.failure, node)):
        built = _built(operator, types, attributes)
        if isinstance(built, tirx.PrimFunc):
            results = [relax.TensorType(t.shape, t.dtype) for t in _types(built, types)]
            scheduled = built.without_attr("global_symbol").with_attr("op_pattern", OPAQUE)
            function = builder.add_func(scheduled, operator.name)
            return relax.call_tir(function, relax.Tuple(present), results)

        def computed(*tensors: te.Tensor) -> te.Tensor | list[te.Tensor]:
            made = _tensors(operator.compute(_placed(types, tensors), attributes))
            return made[0] if len(made) == 1 else list(made)

        return builder.emit_te(computed, *present, primfunc_name_hint=operator.name)


def _built(
    operator: CustomOperator, inputs: Sequence[TensorType | None], attributes: Mapping[str, Any]
) -> _Built:
    present = [each for each in inputs if each is not None]
    tensors = [te.placeholder(each.shape, each.dtype, f"x{i}") for i, each in enumerate(present)]
    made = operator.compute(_placed(inputs, tensors), attributes)
    return made if isinstance(made, tirx.PrimFunc) else _tensors(made)


def _placed(
    types: Sequence[TensorType | None], tensors: Sequence[te.Tensor]
) -> list[te.Tensor | None]:
    rest = iter(tensors)
    return [None if each is None else next(rest) for each in types]


def _tensors(made: Any) -> list[te.Tensor]:
    tensors = list(made) if isinstance(made, Sequence) else [made]
    for each in tensors:
        if not isinstance(each, te.Tensor):
            raise TypeError(f"it returns {type(each).__name__}, not te.Tensor or tirx.PrimFunc")
    return list(map(_computed, tensors))


def _computed(tensor: te.Tensor) -> te.Tensor:
    """Return a tensor, or a copy if it is an input: a kernel has to compute something."""
    if not isinstance(tensor.op, te.PlaceholderOp | relax.expr.TEPlaceholderOp):
        return tensor
    return te.compute(tensor.shape, lambda *place: tensor(*place), name="copy")


def _types(built: _Built, inputs: Sequence[TensorType | None]) -> list[TensorType]:
    if isinstance(built, tirx.PrimFunc):
        count = sum(each is not None for each in inputs)
        return [_type(each.ty.dtype.dtype, each.ty.shape) for each in built.params[count:]]
    return [_type(each.dtype, each.shape) for each in built]


def _type(dtype: Any, shape: Sequence[Any]) -> TensorType:
    extents = []
    for extent in shape:
        if not isinstance(extent, int | tirx.IntImm):
            raise ValueError(f"a shape depends on the data: {list(shape)}")
        extents.append(int(extent))
    return TensorType(str(dtype), tuple(extents))
