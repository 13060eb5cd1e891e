"""The graph under construction, with the known facts about every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows.extent import Count, Extent
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.shapes.static_shapes import static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS

Array = npt.NDArray[Any]

DOMAIN = "neocpu.rows"
"""The domain of our own operators that `neocpu.frontend.converters.convert_rows` converts."""

MOST_CONTENTS = 64
"""The largest size of an integer tensor whose elements are tracked: a shape has a few."""


_DO_NOT_FIT = (onnx.shape_inference.InferenceError, RuntimeError, ValueError, IndexError)
"""The exceptions that ONNX raises for a node that cannot exist."""


class RowGraph:
    """The nodes, constants and values of the graph under construction.

    Parameters
    ----------
    model : onnx.ModelProto
        The simplified model; the inputs and constants of its graph are known from the start.
    """

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
        self._names = FreshNames(
            (
                *self._inferred,
                *(name for node in graph.node for name in node.output),
                *(tensor.name for tensor in graph.initializer),
            ),
            between="",
            first=1,
        )
        self._constants = dict(constant_tensors(graph))
        self._remembered: dict[Any, Any] = {}
        self.base = "rows"
        for tensor in graph.initializer:
            self._know(tensor)
        for value in graph.input:
            if value.name not in self.values:
                self.values[value.name] = self._as_inferred(value.name) or _shapeless(value.name)

    def _know(self, tensor: TensorProto) -> None:
        """Add a constant of the original graph."""
        value = _constant(tensor)
        if 0 in value.shape or _counts(value):
            self.values[tensor.name] = self.adopted(array_of(tensor))
        else:
            self.values[tensor.name] = value

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
        """Return a constant of the new graph."""
        array = np.asarray(array)
        key = (array.tobytes(), array.shape, str(array.dtype))
        if key not in self._remembered:
            tensor = numpy_helper.from_array(array, self.name("constant"))
            self.made[tensor.name] = tensor
            self._constants[tensor.name] = tensor
            value = Value(name=tensor.name, kind=tensor.data_type, shape=array.shape)
            if _counts(value):
                elements = array.reshape(-1).tolist()
                value = replace(value, contents=tuple(Extent(int(each)) for each in elements))
            self._remembered[key] = value
        found: Value = self._remembered[key]
        return found

    def integers(self, *numbers: int) -> Value:
        """Return a constant list of integers."""
        return self.constant(np.array(numbers, np.int64))

    def name(self, suffix: str) -> str:
        """Return a new name."""
        return self._names.fresh(f"{self.base}.{suffix}")

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[str] = (),
        node_name: str = "",
    ) -> list[Value]:
        """Write a standard operator, as if all rows were valid, and return its outputs.

        Parameters
        ----------
        outputs : sequence of str
            The names of the outputs; if there are none, a single output gets a new name.

        Raises
        ------
        RowError
            ONNX cannot infer the shape of an output.
        """
        names = list(outputs) or [self.name(op_type.lower())]
        read = [None if value is None else self.stored(value) for value in inputs]
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
            raise RowError("its shapes do not fit each other") from error
        self.nodes.append(node)
        made = [_from_type(name, found.get(name)) if name else _shapeless("") for name in names]
        if None in made:
            raise RowError("the shape of its result is unknown")
        return self.written(value for value in made if value is not None)

    def emit_one(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Write a standard operator of one output under a new name."""
        return self.emit(op_type, inputs, attributes)[0]

    def cut(self, value: Value, first: int, last: int, axis: int) -> Value:
        """Write a Slice of an axis from ``first`` until before ``last``."""
        return self.emit_one("Slice", value, *(self.integers(each) for each in (first, last, axis)))

    def emit_ours(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, int, tuple[int, ...]]],
        attributes: Mapping[str, Any] | None = None,
    ) -> list[Value]:
        """Write an operator of `DOMAIN` with outputs of these names, element types and shapes."""
        names = [name for name, _, _ in outputs]
        self._write(
            helper.make_node(op_type, [], names, domain=DOMAIN, **(attributes or {})), inputs
        )
        return self.written(
            Value(name=name, kind=kind, shape=shape) for name, kind, shape in outputs
        )

    def keep(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> list[Value]:
        """Write a node unchanged, with known outputs."""
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        self._write(kept, inputs)
        return self.written(outputs)

    def _write(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> None:
        """Append a node with other inputs, after nodes that make pending ones."""
        read = _names([None if value is None else self.stored(value) for value in inputs])
        del node.input[:]
        node.input.extend(read)
        self.nodes.append(node)

    def written(self, values: Iterable[Value]) -> list[Value]:
        """Add the outputs of nodes, and return them."""
        found = list(values)
        self.shapes.update({value.name: value for value in found if value.name})
        return found

    def stored(self, value: Value) -> Value:
        """Return a value that a node makes: the value itself, or one with the same contents."""
        if not value.pending:
            return value
        assert value.contents is not None
        if (elements := self.array(value)) is not None:
            return self.constant(elements)
        key = ("contents", value.contents, value.shape, value.kind)
        if key not in self._remembered:
            parts = [self.counted(each) for each in value.contents]
            whole = parts[0] if len(parts) == 1 else self.emit("Concat", parts, {"axis": 0})[0]
            if value.shape != (len(parts),):
                whole = self.emit_one("Reshape", whole, self.integers(*value.shape))
            if value.kind != TensorProto.INT64:
                whole = self.emit_one("Cast", whole, to=value.kind)
            self._remembered[key] = replace(whole, contents=value.contents)
        found: Value = self._remembered[key]
        return found

    def counted(self, extent: Extent) -> Value:
        """Return an extent as an int64 tensor of shape ``(1,)``."""
        if extent.known:
            return self.integers(extent.constant)
        if extent not in self._remembered:
            total: Value | None = None
            for count, factor in extent.terms:
                term = Value(name=count.name, kind=TensorProto.INT64, shape=(1,))
                if factor != 1:
                    term = self.emit_one("Mul", term, self.integers(factor))
                total = term if total is None else self.emit_one("Add", total, term)
            assert total is not None
            if extent.constant:
                total = self.emit_one("Add", total, self.integers(extent.constant))
            self._remembered[extent] = total
        found: Value = self._remembered[extent]
        return found

    def smaller(self, first: Extent, second: Extent) -> Extent:
        """Return the smaller of two extents."""
        if first.most <= second.least or first == second:
            return first
        if second.most <= first.least:
            return second
        return self._extremum("Min", first, second, min(first.most, second.most))

    def larger(self, first: Extent, second: Extent) -> Extent:
        """Return the larger of two extents."""
        if first.least >= second.most or first == second:
            return first
        if second.least >= first.most:
            return second
        return self._extremum("Max", first, second, max(first.most, second.most))

    def _extremum(self, op_type: str, first: Extent, second: Extent, most: int) -> Extent:
        difference = (first - second).least, (first - second).most
        assert difference[0] < 0 < difference[1] or 0 in difference
        key = (op_type, frozenset((first, second)))
        if key not in self._remembered:
            found = self.emit_one(op_type, self.counted(first), self.counted(second))
            self._remembered[key] = Extent.of(Count(found.name, most))
        result: Extent = self._remembered[key]
        return result

    def remember(self, key: Any, make: Any) -> Value:
        """Return the value that ``make`` writes; for each key it is called once."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: Value = self._remembered[key]
        return found


def _constant(tensor: TensorProto) -> Value:
    return Value(name=tensor.name, kind=tensor.data_type, shape=tuple(tensor.dims))


def _names(values: Sequence[Value | None]) -> list[str]:
    return ["" if value is None else value.name for value in values]


def _shapeless(name: str) -> Value:
    return Value(name=name, kind=0, shape=())


def _counts(value: Value) -> bool:
    """Return whether the elements may be parts of a shape."""
    kinds = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    return value.kind in kinds and value.rank <= 1 and value.size <= MOST_CONTENTS


def _from_type(name: str, kind: onnx.TypeProto | None) -> Value | None:
    if kind is None:
        return None
    shape = static_dims(onnx.ValueInfoProto(name=name, type=kind))
    if shape is None:
        return None
    return Value(name=name, kind=kind.tensor_type.elem_type, shape=shape)
