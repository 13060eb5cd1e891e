"""Import a loaded ONNX model into Relax.

TVM's importer visits the graph and converts most operators. Where its conversion is wrong, slow or
hides the operator from later passes, `neocpu.frontend.converters.table` has one of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.error import InternalError
from tvm.relax.frontend.onnx import onnx_frontend

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.control_flow.flatten import REWRITTEN
from neocpu.frontend.converters.convert_own import OWN_CONVERTERS, ROW_CONVERTERS
from neocpu.frontend.converters.node import Node
from neocpu.frontend.converters.table import CONTRIB_CONVERTERS, CONVERTERS
from neocpu.frontend.expansions.expand import WRITTEN_OUT
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.subgraphs import all_nodes
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows.make_rows import SOURCES
from neocpu.frontend.rows.row_graph import DOMAIN
from neocpu.frontend.shapes.static_shapes import static_dims
from neocpu.frontend.source import first_line
from neocpu.frontend.unsupported import (
    OWN_DOMAIN,
    STANDARD_DOMAINS,
    describe,
    node_name,
    refuse_unsupported,
)
from neocpu.frontend.words import refuse_unknown_words
from neocpu.ir.constants import make_const
from neocpu.ir.custom_operators.lowering import attributes_of, call_operator
from neocpu.ir.custom_operators.registry import find_operator
from neocpu.ir.model_names import RENAMED

# TVM's importer knows these operators, but only the data decide the shape of their output, which a
# statically planned module cannot contain.
_DYNAMIC_OPS = frozenset(("AllClassNMS",))
_MAX_REASONS = 8  # reasons that one message lists
_CONVERTERS_OF: Mapping[str, Mapping[str, Callable[[Node], relax.Expr]]] = {
    **dict.fromkeys(STANDARD_DOMAINS, CONVERTERS),
    "com.microsoft": CONTRIB_CONVERTERS,
    OWN_DOMAIN: OWN_CONVERTERS,
    DOMAIN: ROW_CONVERTERS,
}
"""Our own converters, by domain."""


def import_relax(model: LoadedModel) -> tvm.IRModule:
    """Translate a model with static shapes into Relax.

    ``main`` has the graph inputs as parameters, by name and in order; weights are constants,
    several outputs a tuple. An `UnsupportedError` lists all operators that cannot be compiled, or
    names the node whose attributes or shapes cannot.
    """
    graph = model.bounded.graph
    opset = next(o.version for o in model.bounded.opset_import if o.domain in STANDARD_DOMAINS)
    require_supported(all_nodes(graph.node))
    _refuse_foreign_constants(graph)
    importer = _Importer({}, None, sanitize=False)
    try:
        with np.errstate(all="ignore"):  # overflow in constants is the model's own
            module = importer.from_onnx(graph, opset)
    except BaseException:
        with suppress(InternalError):  # the block may not have begun
            importer.bb._end_block()  # else TVM warns of an open block on stderr
        raise
    main = module["main"]
    _require_static_outputs(main, graph)
    _require_inferred_outputs(main, model.outputs)
    renamed = {**importer.renamed, **_renamed_result(main, graph)}
    if renamed:
        module["main"] = main.with_attr(RENAMED, renamed)
    return module


def require_supported(nodes: Iterable[onnx.NodeProto]) -> None:
    """Raise an `UnsupportedError` that lists every node that cannot be imported."""
    ours = set(CONVERTERS) | WRITTEN_OUT | SOURCES
    known = (set(onnx_frontend._get_convert_map()) | ours) - _DYNAMIC_OPS
    known |= REWRITTEN  # flattening would have refused those that are left
    refuse_unsupported(nodes, known, lambda node: _supports(node, known))


def _described(failures: Mapping[str, Sequence[onnx.NodeProto]]) -> str:
    """Return a text of all nodes that cannot be converted, grouped by operator and reason."""
    parts = []
    for reason, nodes in failures.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        parts.append(f"{describe(nodes[0])}{more}: {reason.partition(' ')[2]}")
    several = f"; and {len(parts) - _MAX_REASONS} more" if len(parts) > _MAX_REASONS else ""
    return "; ".join(parts[:_MAX_REASONS]) + several


def _refuse_foreign_constants(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        if dtype not in DTYPES:
            what = "strings" if tensor.data_type == onnx.TensorProto.STRING else f"{dtype} numbers"
            raise UnsupportedError(f"the model has constant '{tensor.name}' of {what}")


def _supports(node: onnx.NodeProto, known: set[str]) -> bool:
    if node.domain in STANDARD_DOMAINS:
        return node.op_type in known
    if node.op_type in _CONVERTERS_OF.get(node.domain, ()):
        return True
    return find_operator(node.domain, node.op_type) is not None


def _results(function: relax.Function) -> Sequence[relax.Type]:
    result = function.ret_ty
    return result.fields if isinstance(result, relax.TupleType) else [result]


def _require_static_outputs(function: relax.Function, graph: onnx.GraphProto) -> None:
    for value, field in zip(graph.output, _results(function), strict=True):
        shape = getattr(field, "shape", None)
        if shape is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
            raise UnsupportedError(
                f"the shape of output '{value.name}' depends on the data; "
                "only static shapes are supported"
            )


def _require_inferred_outputs(function: relax.Function, outputs: Sequence[TensorSpec]) -> None:
    """Raise if ONNX infers another shape, from wrong attributes that no check has found."""
    for spec, field in zip(outputs, _results(function), strict=False):  # row counts follow
        shape = tuple(map(int, field.shape))
        if shape != spec.shape and not spec.bounded:
            inferred, computed = ("x".join(map(str, each)) for each in (spec.shape, shape))
            raise ModelError(
                f"output '{spec.name}' has shape {inferred or 'of a scalar'} by ONNX's inference, "
                f"and {computed or 'that of a scalar'} by the nodes that compute it: correct their "
                "attributes"
            )


def _renamed_result(function: relax.Function, graph: onnx.GraphProto) -> dict[str, str]:
    """Return the model's name of a single output, by the variable that is the result."""
    ours = str(getattr(function.body.body, "name", ""))
    names = [value.name for value in graph.output]
    return {ours: names[0]} if len(names) == 1 and ours not in ("", *names) else {}


def _require_computable(name: str, kind: relax.Type, wanted: tuple[int, ...] | None) -> None:
    """Raise for a tensor that no kernel computes as ONNX defines it, or of an unexpected shape.

    TVM computes bfloat16 in float32 and never rounds to it. ONNX's inference and TVM's importer
    interpret attributes out of range, such as a keepdims of 2, differently.
    """
    if not isinstance(kind, relax.TensorType):
        return
    dtype = str(kind.dtype.dtype)
    if dtype not in DTYPES:
        raise ValueError(f"its output '{name}' is {dtype}, which is not supported")
    if not isinstance(kind.shape, relax.ShapeExpr):
        return  # shapes that data decide are refused after all constants are folded
    extents = [int(e) if isinstance(e, tvm.tirx.IntImm) else None for e in kind.shape]
    for extent in extents:
        if extent is not None and extent < 1:
            raise ValueError(f"its output '{name}' has an axis of {extent} elements")
    if wanted is not None and None not in extents and extents != list(wanted):
        raise ValueError(
            f"its output '{name}' has shape {extents} by its inputs and attributes, "
            f"{list(wanted)} by ONNX's inference"
        )


class _Builder(relax.BlockBuilder):  # type: ignore[misc]
    """Names the result of a function after the tensor that it is; TVM names it gv."""

    def emit_output(self, output: Any, name_hint: str = "") -> relax.Var:
        of_one = isinstance(output, relax.Var)
        return super().emit_output(output, str(output.name) if of_one else name_hint)


class _Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer with our converters first and errors that name the node."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.bb = _Builder()
        self.renamed: dict[str, str] = {}

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        values = (*graph.value_info, *graph.output)
        self._inferred = {value.name: static_dims(value) for value in values}
        failures: dict[str, list[onnx.NodeProto]] = {}
        cause: Exception | None = None
        for node in graph.node:
            if not all(name in self._nodes for name in node.input if name):
                continue  # an input was not converted
            try:
                result = self._convert(node)
                self._bind(node, result)
            except NeoCPUError:
                raise
            except Exception as error:
                # Any error of a converter means that it cannot take this form of the node.
                failures.setdefault(f"{node.op_type} {first_line(error)}", []).append(node)
                cause = cause or error
        if failures:
            raise UnsupportedError(f"cannot compile {_described(failures)}") from cause

    def _convert(self, node: onnx.NodeProto) -> relax.Expr:
        attrs = self._parse_attr(node.attribute)
        if node.domain in (*STANDARD_DOMAINS, DOMAIN):
            refuse_unknown_words(node.op_type, attrs)
        if node.op_type == "Cast" and attrs.get("to") == onnx.TensorProto.STRING:
            raise ValueError("it makes strings, which are not supported")
        inputs = [self._nodes[name] if name else None for name in node.input]
        if (custom := find_operator(node.domain, node.op_type)) is not None:
            called = call_operator(self.bb, custom, node_name(node), inputs, attributes_of(node))
            return self.bb.normalize(called)
        convert = _CONVERTERS_OF.get(node.domain, {}).get(node.op_type)
        if convert is not None:
            outputs = tuple(node.output)
            converted = convert(Node(self.bb, inputs, attrs, outputs, self.opset))
            return self.bb.normalize(converted)
        attrs["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        return self._convert_operator(
            node.op_type, onnx_frontend.onnx_input(inputs), attrs, self.opset
        )

    def _bind(self, node: onnx.NodeProto, result: relax.Expr) -> None:
        """Bind the node's outputs to their ONNX names, which reports show."""
        if isinstance(result, relax.Tuple):
            fields = list(result.fields)
        elif isinstance(result.ty, relax.TupleType):
            bound = self.bb.emit(result)
            fields = [relax.TupleGetItem(bound, i) for i in range(len(result.ty.fields))]
        else:
            fields = [result]
        missing = [name for name in node.output[len(fields) :] if name]
        if missing:
            raise ValueError(f"its output '{missing[0]}' is not supported")
        for name, value in zip(node.output, fields, strict=False):
            if name:
                self._nodes[name] = self._named(name, value)

    def _named(self, name: str, value: relax.Expr) -> relax.Expr:
        _require_computable(name, value.ty, self._inferred.get(name))
        if isinstance(value, tvm.ir.Call | relax.TupleGetItem):
            # A tensor with the function's own name would shadow it.
            var = self.bb.emit(value, name_hint="main_" if name == "main" else name)
            if str(var.name) != name:  # TVM writes dots as underscores
                self.renamed[str(var.name)] = name
            return var
        return value

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        """Make every weight a constant, whatever its name; TVM refuses empty ones."""
        for tensor in graph.initializer:
            self._nodes[tensor.name] = make_const(array_of(tensor))

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Do nothing: `refuse_unsupported` has checked, and knows our converters."""

    def _parse_attr(self, attributes: Any) -> dict[str, Any]:
        """Return attributes by name, also empty ones; strings are bytes and lists are tuples."""
        parsed = {}
        for attribute in attributes:
            value = onnx.helper.get_attribute_value(attribute)
            parsed[attribute.name] = tuple(value) if isinstance(value, list) else value
        return parsed
