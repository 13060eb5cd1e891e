"""Tensors of floats of 8 bits or fewer, and of integers of fewer, held as bytes.

A module takes no such numbers. Floats are held as the bytes of their bits, and become float32 by a
table; integers as int8 or uint8 of their values. What makes such floats of float32 compares them
with the places where rounding changes, which is exact for every format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.node_writer import NodeWriter, free_prefix
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.unsupported import STANDARD_DOMAINS
from neocpu.frontend.weightless_model import strip_weights
from neocpu.onnx_backend.specialise import AnyArray

_FLOATS: Final[Mapping[int, Any]] = {
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
}
_INTEGERS: Final[Mapping[int, tuple[Any, int, int]]] = {
    TensorProto.INT2: (ml_dtypes.int2, -2, 2),
    TensorProto.INT4: (ml_dtypes.int4, -8, 8),
    TensorProto.UINT2: (ml_dtypes.uint2, 0, 4),
    TensorProto.UINT4: (ml_dtypes.uint4, 0, 16),
}
"""numpy's type, the least value, and the first that is too large."""
_ONE_ZERO: Final = (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ)
"""Formats in which what would be a negative zero is the one NaN, which has no sign."""
_TYPES: Final[Mapping[Any, int]] = {
    **{np.dtype(kind): number for number, kind in _FLOATS.items()},
    **{np.dtype(kind): number for number, (kind, _, _) in _INTEGERS.items()},
}
_MOVES: Final = frozenset(
    ("Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze")
) | {"Split", "Tile", "Transpose", "Unsqueeze"}
"""Operators to which it is all the same what elements are."""


@dataclass(frozen=True, slots=True)
class Held:
    """A model without narrow tensors.

    Attributes
    ----------
    outputs : mapping of str to int
        ONNX's element types of outputs that are held as bytes.
    """

    model: onnx.ModelProto
    outputs: Mapping[str, int]


def as_bits(array: AnyArray) -> AnyArray:
    """Return an array of narrow numbers as it is held; others as they are."""
    kind = _TYPES.get(array.dtype)
    if kind is None:
        return array
    return array.view(np.uint8) if kind in _FLOATS else array.astype(_held_dtype(kind))


def from_bits(array: AnyArray, kind: int | None) -> AnyArray:
    """Return an array as the model says it is: ``kind`` is its narrow element type, if any."""
    if kind is None:
        return array
    return array.view(_FLOATS[kind]) if kind in _FLOATS else array.astype(_INTEGERS[kind][0])


def hold_as_bits(model: onnx.ModelProto) -> Held:
    """Return a model without narrow tensors, if it only moves and converts them; else as it is."""
    light = strip_weights(model).model
    if not _mentions_narrow(model):
        return Held(model, {})
    try:
        inferred = onnx.shape_inference.infer_shapes(light)
    except (onnx.shape_inference.InferenceError, ValueError):
        return Held(model, {})  # the compiler says what is wrong
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    names = (name for node in model.graph.node for name in _names(node))
    shapes = known_shapes(inferred.graph)
    rewriter = _Rewriter(free_prefix(names, "narrow_"), types=types, shapes=shapes)
    if not all(map(rewriter.rewrite, model.graph.node)):
        return Held(model, {})
    held = onnx.ModelProto()
    held.CopyFrom(model)
    graph = held.graph
    del graph.node[:], graph.value_info[:]
    graph.node.extend(rewriter.nodes)
    for tensor in graph.initializer:
        if _is_narrow(tensor.data_type):
            array = as_bits(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    graph.initializer.extend(rewriter.tensors)
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type.elem_type
        if _is_narrow(kind):
            value.type.tensor_type.elem_type = _held_type(kind)
    outputs = {value.name: types[value.name] for value in graph.output}
    return Held(held, {name: kind for name, kind in outputs.items() if _is_narrow(kind)})


def _names(node: onnx.NodeProto) -> Sequence[str]:
    return [*node.input, *node.output]


def _mentions_narrow(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.output)
    kinds = {value.type.tensor_type.elem_type for value in values}
    kinds |= {tensor.data_type for tensor in model.graph.initializer}
    kinds |= {a.i for node in model.graph.node for a in node.attribute if a.name == "to"}
    return any(map(_is_narrow, kinds))


def _is_narrow(kind: int) -> bool:
    return kind in _FLOATS or kind in _INTEGERS


def _held_dtype(kind: int) -> Any:
    return np.int8 if kind in (TensorProto.INT2, TensorProto.INT4) else np.uint8


def _held_type(kind: int) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(_held_dtype(kind))))


@dataclass(slots=True, kw_only=True)
class _Rewriter(NodeWriter):
    """Nodes that do what a model's do, on bytes in the place of narrow numbers."""

    types: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]

    def rewrite(self, node: onnx.NodeProto) -> bool:
        """Write what a node becomes; return False if it computes with narrow numbers."""
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            return False  # what it reads from around it is not looked at
        if not any(_is_narrow(self.types.get(name, 0)) for name in _names(node)):
            self.nodes.append(node)
            return True
        blocks = any(a.name == "block_size" and a.i for a in node.attribute)
        if node.domain not in STANDARD_DOMAINS or blocks:
            return False
        if node.op_type in _MOVES:
            self.nodes.append(node)
            return True
        writers: Mapping[str, Callable[[onnx.NodeProto], None]] = {
            "Cast": self._cast,
            "CastLike": self._cast,
            "DequantizeLinear": self._dequantise,
            "QuantizeLinear": self._quantise,
        }
        writer = writers.get(node.op_type)
        if writer is not None:
            writer(node)
        return writer is not None

    def _cast(self, node: onnx.NodeProto) -> None:
        source, target = self.types[node.input[0]], self.types[node.output[0]]
        attributes = attributes_of(node)
        value = self._wide(node.input[0])
        if not _is_narrow(target):
            self.op("Cast", value, to=target, output=node.output[0])
        elif source == target:
            self.op("Identity", node.input[0], output=node.output[0])
        elif target in _FLOATS:
            mode = attributes.get("round_mode", b"up").decode()
            saturates = bool(attributes.get("saturate", 1))
            self._round(value, target, node.output[0], saturates=saturates, mode=mode)
        else:
            self._wrap(value, target, node.output[0])

    def _quantise(self, node: onnx.NodeProto) -> None:
        target = self.types[node.output[0]]
        scale, zero = self._wide(node.input[1]), (*node.input, "")[2]
        kept = attributes_of(node)
        axis = {"axis": kept["axis"]} if "axis" in kept else {}
        if target in _FLOATS:
            value = self.op("Div", node.input[0], self._along(node, scale))
            self._round(value, target, node.output[0], saturates=bool(kept.get("saturate", 1)))
            return
        _, low, high = _INTEGERS[target]
        zeros = zero or self.const(np.zeros((), _held_dtype(target)))
        value = self.op("QuantizeLinear", node.input[0], scale, zeros, **axis)
        ends = (self.const(np.array(end, _held_dtype(target))) for end in (low, high - 1))
        self.op("Clip", value, *ends, output=node.output[0])

    def _dequantise(self, node: onnx.NodeProto) -> None:
        source = self.types[node.input[0]]
        if source in _INTEGERS:
            self.nodes.append(node)
            return
        value = self._wide(node.input[0])
        if len(node.input) > 2:
            value = self.op("Sub", value, self._along(node, self._wide(node.input[2])))
        value = self.op("Cast", value, to=self.types[node.input[1]])
        self.op("Mul", value, self._along(node, node.input[1]), output=node.output[0])

    def _along(self, node: onnx.NodeProto, values: str) -> str:
        """Write scales or zero points along their axis."""
        rank = len(self.shapes.get(node.input[0], ()))
        if len(self.shapes.get(node.input[1], ())) != 1 or rank < 2:
            return values
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1) % rank
        shape = [-1 if each == axis else 1 for each in range(rank)]
        return self.op("Reshape", values, self.const(np.array(shape)))

    def _wide(self, name: str) -> str:
        """Write a tensor's values, of whatever type: float32 of narrow floats."""
        kind = self.types[name]
        if kind not in _FLOATS:
            return name
        table = np.arange(256, dtype=np.uint8).view(_FLOATS[kind]).astype(np.float32)
        return self.op("Gather", self.const(table), self.op("Cast", name, to=TensorProto.INT32))

    def _wrap(self, value: str, kind: int, output: str) -> None:
        """Write an integer's lowest bits, as int8 or uint8 of its value."""
        _, low, high = _INTEGERS[kind]
        whole = self.op("Cast", value, to=TensorProto.INT32)
        shift, period = (self.const(np.array(n, np.int32)) for n in (low, high - low))
        rest = self.op("Mod", self.op("Sub", whole, shift), period)
        self.op("Cast", self.op("Add", rest, shift), to=_held_type(kind), output=output)

    def _round(
        self, value: str, kind: int, output: str, *, saturates: bool, mode: str = "nearest"
    ) -> None:
        """Write the bits of float32 numbers rounded to a narrow format."""
        wide = self.op("Cast", value, to=TensorProto.FLOAT)
        ends = _steps(kind, mode if kind == TensorProto.FLOAT8E8M0 else "nearest")
        if saturates:
            ends = ends[: _largest(kind)]
        magnitude = self.op("Unsqueeze", self.op("Abs", wide), self.const(np.array([-1])))
        passed = self.op("GreaterOrEqual", magnitude, self.const(ends))
        counts = self.op("Cast", passed, to=TensorProto.INT32)
        code = self.op("ReduceSum", counts, self.const(np.array([-1])), keepdims=0)
        sign = _sign(kind)
        if sign:
            small = self.op("Less", self.op("Reciprocal", wide), self.const(np.float32(0)))
            below = self.op("Less", wide, self.const(np.float32(0)))
            negative = self.op("Or", below, small)
            if kind in _ONE_ZERO:
                above = self.op("Greater", code, self.const(np.int32(0)))
                finite = self.op("Less", code, self.const(np.int32(sign)))
                negative = self.op("And", negative, self.op("And", above, finite))
            added = self.op("Add", code, self.const(np.int32(sign)))
            code = self.op("Where", negative, added, code)
        nan_code = int(np.array(np.nan, np.float32).astype(_FLOATS[kind]).view(np.uint8))
        code = self.op("Where", self.op("IsNaN", wide), self.const(np.int32(nan_code)), code)
        self.op("Cast", code, to=TensorProto.UINT8, output=output)


def _sign(kind: int) -> int:
    """Return the bit that negative numbers have."""
    return {TensorProto.FLOAT8E8M0: 0, TensorProto.FLOAT4E2M1: 8}.get(kind, 128)


def _largest(kind: int) -> int:
    """Return the code of the largest finite number."""
    codes = np.arange(_sign(kind) or 255, dtype=np.uint8)
    finite = np.isfinite(codes.view(_FLOATS[kind]).astype(np.float32))
    return int(codes[finite].max())


def _steps(kind: int, mode: str) -> AnyArray:
    """Return from which float32 number on each code but the first is rounded to.

    Halves go to the even code. What follows the largest finite number is infinity or no number,
    whichever the format has, as if it were the next number.
    """
    largest = _largest(kind)
    codes = np.arange(largest + 1, dtype=np.uint8)
    values = codes.view(_FLOATS[kind]).astype(np.float64)
    values = np.append(values, 2 * values[-1] - values[-2])
    lower, upper = values[:-1], values[1:]
    nearest = {"up": lower, "down": upper}.get(mode, (lower + upper) / 2)
    ends = nearest.astype(np.float32)
    stays = codes % 2 == 0 if mode == "nearest" else np.full(codes.shape, mode == "up")
    steps: AnyArray = np.where(stays, np.nextafter(ends, np.float32(np.inf)), ends)
    return steps
