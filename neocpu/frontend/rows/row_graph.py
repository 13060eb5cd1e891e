"""The graph under construction, its known tensors, and the steps that write it node by node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows.row_value import Count, Extent, RowError, Value
from neocpu.frontend.shapes.static_shapes import static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS

Array = npt.NDArray[Any]

DOMAIN = "neocpu.rows"
"""The domain of our own operators that `neocpu.frontend.converters.convert_own` converts."""

MOST_CONTENTS = 64
"""The largest size of an integer tensor whose elements are tracked: a shape has a few."""


_DO_NOT_FIT = (onnx.shape_inference.InferenceError, RuntimeError, ValueError, IndexError)
"""The exceptions that ONNX raises for a node that cannot exist."""


class RowGraph:
    """The nodes, constants and values of the graph that replaces a simplified model's."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.values: dict[str, Value] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.made: dict[str, TensorProto] = {}
        self.shapes: dict[str, Value] = {}
        self._opsets = list(model.opset_import)
        self._opset = next(o.version for o in self._opsets if o.domain in STANDARD_DOMAINS)
        self._inferred = {
            value.name: value for value in (*graph.value_info, *graph.output, *graph.input)
        }
        made = (name for node in graph.node for name in node.output)
        taken = (*self._inferred, *made, *(tensor.name for tensor in graph.initializer))
        self.names = FreshNames(taken, between="", first=1)
        self._constants = dict(constant_tensors(graph))
        self._remembered: dict[Hashable, Value] = {}
        self.base = "rows"
        for tensor in graph.initializer:
            value = _constant(tensor)
            is_adopted = 0 in value.shape or _counts(value)
            self.values[tensor.name] = self.adopted(array_of(tensor)) if is_adopted else value
        for value in graph.input:
            if value.name not in self.values:
                self.values[value.name] = self._as_inferred(value.name) or _shapeless(value.name)

    def adopted(self, array: Array) -> Value:
        """Return a constant; one without elements has no valid rows along an axis."""
        if 0 not in array.shape:
            return self.constant(array)
        shape = tuple(max(extent, 1) for extent in array.shape)
        whole = self.constant(np.zeros(shape, array.dtype))
        contents = () if array.ndim == 1 and array.dtype.kind in "ib" else None
        return replace(whole, axis=array.shape.index(0), rows=Extent(0), contents=contents)

    def array(self, value: Value | None) -> Array | None:
        """Return a constant's elements, or None for a value that a run computes."""
        if value is None or value.axis is not None:
            return None
        if value.known is not None:
            kind = helper.tensor_dtype_to_np_dtype(value.kind)
            return np.array(value.known, kind).reshape(value.shape)
        tensor = self._constants.get(value.name)
        return None if tensor is None else array_of(tensor)

    def by_name(self, name: str) -> Value:
        """Return a constant, or a node's output, as if all its rows were valid."""
        if name in self.shapes:
            return self.shapes[name]
        tensor = self._constants.get(name)
        return self.values[name] if tensor is None else _constant(tensor)

    def as_inferred(self, names: Iterable[str]) -> list[Value] | None:
        """Return outputs with the shapes that ONNX infers; None if it does not know one."""
        found = [self._as_inferred(name) for name in names]
        return None if None in found else [value for value in found if value is not None]

    def _as_inferred(self, name: str) -> Value | None:
        if not name:
            return _shapeless("")
        value = self._inferred.get(name)
        shape = None if value is None else static_dims(value)
        if value is None or shape is None:
            return None
        return Value(name=name, kind=value.type.tensor_type.elem_type, shape=shape)

    def constant(self, array: Array) -> Value:
        """Return a constant of the new graph; equal ones are one."""
        array = np.asarray(array)
        key = (array.tobytes(), array.shape, str(array.dtype))
        return self.remember(key, lambda: self._added(array))

    def _added(self, array: Array) -> Value:
        tensor = numpy_helper.from_array(array, self.name("constant"))
        self.made[tensor.name] = self._constants[tensor.name] = tensor
        value = _constant(tensor)
        if not _counts(value):
            return value
        return replace(value, contents=tuple(map(Extent, array.reshape(-1).astype(int).tolist())))

    def integers(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def name(self, suffix: str) -> str:
        return self.names.fresh(f"{self.base}.{suffix}")

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[str] = (),
        node_name: str = "",
    ) -> list[Value]:
        """Write a standard operator, as if all rows were valid, and return its outputs.

        Without ``outputs``, a single one gets a new name. Raises a `RowError` if ONNX cannot infer
        shapes.
        """
        names = list(outputs) or [self.name(op_type.lower())]
        read = [value and self.stored(value) for value in inputs]
        node = helper.make_node(op_type, _names(read), names, node_name, **(attributes or {}))
        present = [value for value in read if value is not None]
        types = {v.name: helper.make_tensor_type_proto(v.kind, v.shape) for v in present}
        small = (v.name for v in present if v.size <= MOST_CONTENTS and v.name in self._constants)
        data = {name: self._constants[name] for name in small}
        schema = onnx.defs.get_schema(op_type, self._opset, "")
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=self._opsets
            )
        except _DO_NOT_FIT as error:
            raise RowError("the shapes of its inputs do not fit each other") from error
        self.nodes.append(node)
        made = [_from_type(name, found.get(name)) if name else _shapeless("") for name in names]
        return self.written(made)

    def op(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Write a standard operator of one output under a new name."""
        return self.emit(op_type, inputs, attributes)[0]

    def cut(self, value: Value, first: int, last: int, axis: int) -> Value:
        """Write a Slice of an axis from ``first`` until before ``last``."""
        return self.op("Slice", value, *(self.integers(each) for each in (first, last, axis)))

    def emit_ours(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, int, tuple[int, ...]]],
        attributes: Mapping[str, Any] | None = None,
    ) -> list[Value]:
        """Write an operator of `DOMAIN` with outputs of these names, element types and shapes."""
        names = [name for name, _, _ in outputs]
        node = helper.make_node(op_type, [], names, domain=DOMAIN, **(attributes or {}))
        made = [Value(name=name, kind=kind, shape=shape) for name, kind, shape in outputs]
        return self.keep(node, inputs, made)

    def keep(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> list[Value]:
        """Write a copy of a node, with other inputs, after nodes that make pending ones."""
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        kept.input[:] = _names([value and self.stored(value) for value in inputs])
        self.nodes.append(kept)
        return self.written(outputs)

    def written(self, values: Sequence[Value]) -> list[Value]:
        """Add the outputs of nodes, and return them."""
        self.shapes.update({value.name: value for value in values if value.name})
        return list(values)

    def stored(self, value: Value) -> Value:
        """Return a value that a node makes: the value itself, or one with the same contents."""
        if not value.pending:
            return value
        if (elements := self.array(value)) is not None:
            return self.constant(elements)
        key = ("contents", value.contents, value.shape, value.kind)
        return self.remember(key, lambda: self._joined(value))

    def _joined(self, value: Value) -> Value:
        parts = [self.counted(each) for each in value.contents or ()]
        whole = parts[0] if len(parts) == 1 else self.emit("Concat", parts, {"axis": 0})[0]
        if value.shape != (len(parts),):
            whole = self.op("Reshape", whole, self.integers(*value.shape))
        if value.kind != TensorProto.INT64:
            whole = self.op("Cast", whole, to=value.kind)
        return replace(whole, contents=value.contents)

    def counted(self, extent: Extent) -> Value:
        """Return an extent as an int64 tensor of shape ``(1,)``."""
        if extent.known:
            return self.integers(extent.constant)
        return self.remember(extent, lambda: self._summed(extent))

    def _summed(self, extent: Extent) -> Value:
        return reduce(lambda total, term: self.op("Add", total, term), self._terms(extent))

    def _terms(self, extent: Extent) -> Iterator[Value]:
        for count, factor in extent.terms:
            term = Value(name=count.name, kind=TensorProto.INT64, shape=(1,))
            yield term if factor == 1 else self.op("Mul", term, self.integers(factor))
        if extent.constant:
            yield self.integers(extent.constant)

    def smaller(self, first: Extent, second: Extent) -> Extent:
        if first.most <= second.least or first == second:
            return first
        if second.most <= first.least:
            return second
        return self._extremum("Min", first, second, min(first.most, second.most))

    def larger(self, first: Extent, second: Extent) -> Extent:
        if first.least >= second.most or first == second:
            return first
        if second.least >= first.most:
            return second
        return self._extremum("Max", first, second, max(first.most, second.most))

    def _extremum(self, op_type: str, first: Extent, second: Extent, most: int) -> Extent:
        difference = (first - second).least, (first - second).most
        assert difference[0] < 0 < difference[1] or 0 in difference
        key = (op_type, frozenset((first, second)))
        found = self.remember(
            key, lambda: self.op(op_type, self.counted(first), self.counted(second))
        )
        return Extent.of(Count(found.name, most))

    def remember(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value that ``make`` writes; for each key it is called once."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]


def _constant(tensor: TensorProto) -> Value:
    return Value(name=tensor.name, kind=tensor.data_type, shape=tuple(tensor.dims))


def _names(values: Sequence[Value | None]) -> list[str]:
    return ["" if value is None else value.name for value in values]


def _shapeless(name: str) -> Value:
    return Value(name=name, kind=0, shape=())


def _counts(value: Value) -> bool:
    kinds = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    return value.kind in kinds and value.rank <= 1 and value.size <= MOST_CONTENTS


def _from_type(name: str, kind: onnx.TypeProto | None) -> Value:
    shape = None if kind is None else static_dims(onnx.ValueInfoProto(name=name, type=kind))
    if kind is None or shape is None:
        raise RowError("the shape of its result is unknown")
    return Value(name=name, kind=kind.tensor_type.elem_type, shape=shape)


ALONG = "it works along the rows"
MERGED = "it merges rows, or splits them"
MIXED = "it combines rows that different operators selected"
FIXED = "it combines the selected rows with a fixed number of rows"
PARAMETERS = "its parameters depend on the selected rows"
TWO_AXES = "its result has variable numbers of rows along two axes"


@dataclass(frozen=True, slots=True)
class Step:
    """A node that reads partly valid rows, or makes such rows; omitted operands are None."""

    node: onnx.NodeProto
    operands: tuple[Value | None, ...]
    graph: RowGraph

    @property
    def attributes(self) -> Mapping[str, Any]:
        return attributes_of(self.node)

    def attribute(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def operand(self, index: int) -> Value:
        """Return an input that must not be omitted."""
        value = self.optional(index)
        if value is None:
            raise RowError(f"it lacks its input {index}")
        return value

    def optional(self, index: int) -> Value | None:
        return self.operands[index] if index < len(self.operands) else None

    def array(self, index: int) -> Array | None:
        """Return a constant input, None if it is omitted; a `RowError` if a run computes it."""
        value = self.optional(index)
        if value is None:
            return None
        array = self.graph.array(value)
        if array is None:
            raise RowError(PARAMETERS)
        return array

    def contents(self, index: int, why: str = PARAMETERS) -> tuple[Extent, ...]:
        """Return the elements of an input that decide shapes; RowError with `why` if unknown."""
        contents = self.operand(index).contents
        if contents is None:
            raise RowError(why)
        return contents

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute ``axis`` as a number that is not negative."""
        return int(self.attribute("axis", default)) % max(rank, 1)

    def only_first_bounded(self) -> Value:
        """Return the first input; all rows of the others must be valid."""
        if any(value is not None and value.axis is not None for value in self.operands[1:]):
            raise RowError(PARAMETERS)
        return self.operand(0)

    def same(self, inputs: Sequence[Value | None] | None = None) -> list[Value]:
        """Write the node on other inputs, and return its outputs as if all rows were valid."""
        read = self.operands if inputs is None else inputs
        node = self.node
        return self.graph.emit(node.op_type, read, self.attributes, node.output, node.name)

    def last(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Write another operator instead of the node."""
        node = self.node
        return self.graph.emit(op_type, inputs, attributes, node.output[:1], node.name)[0]


Rule = Callable[[Step], Sequence[Value]]
"""A function that writes a node for partly valid rows and returns its outputs, or raises a
`RowError`."""


def refuse_if(refused: object, reason: str) -> None:
    if refused:
        raise RowError(reason)


def one_count(values: Sequence[Value]) -> Extent | None:
    """Return the number of valid rows that several tensors share; None if all rows are valid."""
    counts = {value.count for value in values if value.axis is not None}
    refuse_if(len(counts) > 1, MIXED)
    return counts.pop() if counts else None
