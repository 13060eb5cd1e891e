"""Static upper bounds for numbers of rows that only the data decide.

NonZero becomes an operator with two outputs: as many rows as it could find, and the number of valid
ones. All nodes after it also compute the invalid rows, which the runtime cuts off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from neocpu.frontend.control_flow.bodies import Body, live_nodes
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_of
from neocpu.frontend.onnx_graph.subgraphs import all_nodes, graphs_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows import (
    fold_rows,
    keep_rows,
    known_loops,
    look_up_rows,
    make_rows,
    move_rows,
)
from neocpu.frontend.rows.contents import evaluate
from neocpu.frontend.rows.divided_rows import divide_rows
from neocpu.frontend.rows.keep_rows import chosen
from neocpu.frontend.rows.make_rows import SOURCES
from neocpu.frontend.rows.row_graph import DOMAIN, RowGraph, Rule, Step, refuse_if
from neocpu.frontend.rows.row_value import Extent, RowError, Value
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe, node_name

RULES: Mapping[str, Rule] = {
    **keep_rows.RULES,
    **move_rows.RULES,
    **look_up_rows.RULES,
    **fold_rows.RULES,
    **make_rows.RULES,
    **known_loops.RULES,
}

_SHAPED = frozenset("ConstantOfShape Expand Pad Range Reshape Resize Slice Split Tile TopK".split())
"""Operators whose parameters decide the shapes of their results."""


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """A model with static shapes, or the reasons why there is none."""

    model: onnx.ModelProto  # its outputs are followed by hidden ones, the counts
    counts: Mapping[str, str]  # each output with invalid rows, and the count of its valid ones
    problems: tuple[str, ...] = ()  # the nodes that cannot work on such rows, with reasons


def bound_rows(model: onnx.ModelProto) -> BoundedRows:
    """Return a simplified model with static shapes for the most rows; unchanged if it has none."""
    nodes = all_nodes(model.graph.node)
    if not any(_is(node, SOURCES) or node.domain == DOMAIN for node in nodes):
        return BoundedRows(model, {})
    walk = _Walk(RowGraph(model))
    for node in model.graph.node:
        walk.follow(node)
    counts = walk.finish(model.graph.output)
    if walk.problems:
        return BoundedRows(model, {}, tuple(walk.problems))
    kept = {value.name for value in model.graph.output} | set(counts.values())
    walk.graph.nodes = divide_rows(walk.graph, walk.rows, kept)
    return BoundedRows(_written(model, walk.graph, counts), counts)


def row_values(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the values that depend on the number of rows that a run finds."""
    found: set[str] = set()
    for node in graph.node:
        inner = [each for part in graphs_of(node) for each in all_nodes(part.node)]
        read = {name for each in (node, *inner) for name in each.input}
        if any(_is(each, SOURCES) for each in (node, *inner)) or found & read:
            found.update(node.output)
    return found


def _is(node: onnx.NodeProto, op_types: frozenset[str]) -> bool:
    return node.op_type in op_types and node.domain in STANDARD_DOMAINS


@dataclass
class _Walk:
    graph: RowGraph
    problems: list[str] = field(default_factory=list)  # nodes that cannot work on partly valid rows
    # values after a problem, for which there is no message
    lost: set[str] = field(default_factory=set)
    rows: dict[str, Value] = field(default_factory=dict)  # the values with invalid rows

    def follow(self, node: onnx.NodeProto) -> None:
        if self.lost.intersection(node.input):
            self.lost.update(node.output)
            return
        self.graph.base = node.name or node.output[0]
        try:
            results = self._results(node)
        except RowError as error:
            self.problems.append(f"{describe(node)} ({error})")
            self.lost.update(node.output)
            return
        self.graph.values.update(zip(node.output, results, strict=False))
        self.rows.update({v.name: v for v in results if v.axis is not None and not v.pending})

    def _results(self, node: onnx.NodeProto) -> Sequence[Value]:
        values = self.graph.values
        if node.op_type == "If":
            return self._branched(node)
        if node.op_type == "Constant":
            return [values[node.output[0]]] if node.output[0] in values else self._kept(node, [])
        operands = [values[name] if name else None for name in node.input]
        if node.op_type in _SHAPED or node.op_type.startswith("Reduce"):
            operands[1:] = map(self._parameter, operands[1:])
        step = Step(node, tuple(operands), self.graph)
        if node.domain in STANDARD_DOMAINS:
            present = [value for value in operands if value is not None]
            if (found := evaluate(step)) is not None:
                return [found]
            asks = node.op_type in _SHAPED and any(v.contents and v.known is None for v in present)
            if node.op_type in SOURCES or asks or any(v.axis is not None for v in present):
                rule = RULES.get(node.op_type)
                if rule is None:
                    raise RowError("it is not known to work row by row")
                return rule(step)
        elif node.domain == DOMAIN:
            return RULES[node.op_type](step)
        elif any(value is not None and value.axis is not None for value in operands):
            raise RowError("it is not known to work row by row")
        return self._kept(node, operands)

    def _parameter(self, value: Value | None) -> Value | None:
        """Return a list without valid elements as an empty list."""
        if value is None or value.rank != 1 or value.rows != Extent(0):
            return value
        return self.graph.constant(np.zeros(0, onnx.helper.tensor_dtype_to_np_dtype(value.kind)))

    def _kept(self, node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Value]:
        inferred = self.graph.as_inferred(node.output)
        if inferred is None:
            refuse_if(node.domain not in STANDARD_DOMAINS, "the shape of its result is unknown")
            return Step(node, tuple(operands), self.graph).same()
        return self.graph.keep(node, operands, inferred)

    def _branched(self, node: onnx.NodeProto) -> Sequence[Value]:
        """Follow both branches of an If, or the one that is always taken."""
        condition = self.graph.values[node.input[0]]
        if condition.known is not None:
            return self._inlined(node, "then" if condition.known[0] else "else")
        first, second = (self._inlined(node, branch) for branch in ("then", "else"))
        self.graph.base = node.name or node.output[0]
        pairs = zip(first, second, node.output, strict=True)
        return [chosen(self.graph, condition, one, other, name) for one, other, name in pairs]

    def _inlined(self, node: onnx.NodeProto, branch: str) -> Sequence[Value]:
        """Write a branch's nodes under new names, and return its outputs."""
        part, problems = attributes_of(node)[f"{branch}_branch"], len(self.problems)
        before = dict(self.graph.values)
        for tensor in part.initializer:
            self.graph.values[tensor.name] = self.graph.adopted(array_of(tensor))
        copies, outputs = Body(part, self.graph.names).instance((), f"{node_name(node)}/{branch}")
        for copy, own in zip(copies, part.node, strict=True):
            copy.name = own.name  # messages name the model's own node
            if copy.op_type == "Constant":
                self.graph.values[copy.output[0]] = self.graph.adopted(constant_of(copy))
            else:
                self.follow(copy)
        results = [self.graph.values.get(name) for name in outputs]
        self.graph.values = before
        if len(self.problems) > problems or None in results:
            raise RowError("a node of its branches is not supported")
        return [value for value in results if value is not None]

    def finish(self, outputs: Sequence[onnx.ValueInfoProto]) -> dict[str, str]:
        """Give outputs their names, and return the counts of those with invalid rows."""
        counts: dict[str, str] = {}
        for output in outputs:
            name = output.name
            if name in self.lost:
                continue
            value = self.graph.values[name]
            if value.pending or value.name != name:
                self.graph.base = name
                made = self.graph.emit("Identity", [value], outputs=[name])[0]
                value = self.graph.values[name] = made.like(value)
            if value.axis is None:
                continue
            if value.axis != 0:
                self.problems.append(
                    f"output '{name}' (its rows lie along axis {value.axis}, not 0)"
                )
                continue
            self.graph.base = name
            count = self.graph.counted(value.count)
            if value.count.known:  # a constant is no node's output
                count = self.graph.op("Identity", count)
            counts[name] = count.name
        return counts


def _written(model: onnx.ModelProto, graph: RowGraph, counts: Mapping[str, str]) -> onnx.ModelProto:
    declared = {value.name: value for value in model.graph.output}
    outputs = [*declared, *dict.fromkeys(counts.values())]
    nodes = live_nodes(graph.nodes, outputs)
    wanted = {name for node in nodes for name in node.input}.union(outputs)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer} | graph.made
    written = onnx.ModelProto()
    for name in ("ir_version", "producer_name", "domain", "doc_string"):
        setattr(written, name, getattr(model, name))
    written.opset_import.extend(o for o in model.opset_import if o.domain != DOMAIN)
    written.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    written.functions.extend(model.functions)
    written.graph.name = model.graph.name
    written.graph.input.extend(model.graph.input)
    written.graph.node.extend(nodes)
    written.graph.initializer.extend(t for name, t in tensors.items() if name in wanted)
    known = graph.values | graph.shapes
    written.graph.output.extend(
        _declared(name, known[name]) if name in known else declared[name] for name in outputs
    )
    made = {name for node in nodes for name in node.output}.difference(outputs)
    written.graph.value_info.extend(
        _declared(name, value) for name, value in graph.shapes.items() if name in made
    )
    return written


def _declared(name: str, value: Value) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, value.kind, value.shape)
