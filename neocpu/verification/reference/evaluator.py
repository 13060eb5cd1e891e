"""Run onnx's reference evaluator on a large model; results are freed after their last use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import onnx.inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.control_flow.bodies import reads
from neocpu.frontend.numpy_operators.lookup_operators import Columns
from neocpu.frontend.numpy_operators.pieces import in_pieces
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.verification.reference.tolerance import finite, scales

_WHOLE: Final = 2.0**20  # magnitude above which nearly all numbers of float32 are whole

_SUMS: Final = frozenset(
    """
    AveragePool BatchNormalization Conv ConvTranspose CumSum Einsum Gemm GlobalAveragePool
    GroupNormalization InstanceNormalization LayerNormalization MatMul MeanVarianceNormalization
    ReduceMean ReduceSum
    """.split()
)
"""Operators whose results near zero err as much as their neighbours: long sums, and differences
from a mean."""

_MOVES: Final = frozenset(
    """
    Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity MaxPool Relu Reshape
    Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze Where
    """.split()
)
"""Operators that make no new numbers except zeros, so that their results need no conversion."""

_LEAST_NORMAL: Final = (1 << 24) - 1
"""Bits of the smallest normal number of float32, doubled, less 1."""


class Noise:
    """Random changes of float32 results, which stand for a different rounding.

    A change is at most ``ulps * 2**-24`` of the result, or for operators that sum, of the scale of
    the results around it (`scales`) if that is larger.
    """

    def __init__(self, seed: int, ulps: float) -> None:
        self._random = np.random.default_rng(seed)
        self._largest = ulps * float(np.finfo(np.float32).epsneg)

    def moved(self, value: Any, op_type: str) -> Any:
        """Return a changed result of a node. Whole numbers stay, because they may be counts."""
        value = _flushed(value)
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            return value
        whole = (value == np.rint(value)) & (np.abs(value) < _WHOLE)
        size = np.abs(finite(value.astype(np.float64)))
        if op_type in _SUMS:
            size = np.maximum(size, scales(size))
        drawn = self._random.uniform(-self._largest, self._largest, value.shape)
        # Float64 can represent the change, which float32 would round away.
        return np.where(whole, value, (value + drawn * size).astype(np.float32))


def evaluate(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    operators: Sequence[type[OpRun]],
    *,
    double: bool = False,
    noise: Noise | None = None,
) -> dict[str, Array]:
    """Return a model's outputs in graph order; ``operators`` replace the evaluator's own.

    Unlike onnx's own loop, it keeps no intermediate results and no second copy of weights.
    ``double`` computes float32 in float64; without it, denormal results are zeros, as in compiled
    code, and noise changes the results of nodes.
    """
    light = strip_weights(model)
    flat = light.model
    if flat.functions:  # the evaluator would run their nodes by onnx's own operators
        flat = onnx.inliner.inline_local_functions(flat, convert_version=True)
    evaluator = ReferenceEvaluator(flat, new_ops=[*operators, *CONTROL_FLOW_OPERATORS])
    names: list[str] = evaluator.output_names
    run = _Run(light.weights, _widened if double else _flushed, noise)
    return dict(zip(names, run.graph(evaluator, inputs, None), strict=True))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The values of a graph, and the scope of the graph around it."""

    values: dict[str, Any]
    outer: _Scope | None

    def find(self, name: str) -> _Scope | None:
        """Return the innermost scope that has a value of this name."""
        scope: _Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a model: its weights, the conversion of results, and noise."""

    weights: Mapping[str, onnx.TensorProto]
    keep: Callable[[Any], Any]
    noise: Noise | None

    def graph(
        self, evaluator: ReferenceEvaluator, inputs: Mapping[str, Any], outer: _Scope | None
    ) -> list[Any]:
        """Run a graph, or one within ``outer``; return its outputs."""
        names: list[str] = evaluator.output_names
        nodes = _needed(evaluator.rt_nodes_, names)
        index_columns = _index_columns(nodes, names)
        last_reader = {
            name: index for index, node in enumerate(nodes) for name in reads(node.onnx_node)
        }
        given = {**evaluator.rt_inits_, **inputs}
        scope = _Scope(
            {"": None} | {name: self.keep(array) for name, array in given.items()}, outer
        )
        for index, node in enumerate(nodes):
            results = self._node(node, scope, as_columns=node.output[0] in index_columns)
            scope.values.update(zip(node.output, results, strict=False))
            for name in {*reads(node.onnx_node), *node.output} - {"", *names}:
                if last_reader.get(name, index) <= index:
                    scope.values.pop(name, None)
        return [self._value(name, scope) for name in names]

    def _node(self, node: Any, scope: _Scope, *, as_columns: bool) -> list[Any]:
        inputs = [self._value(name, scope) for name in node.input]
        if as_columns:
            return [Columns.of(inputs)]
        control = CONTROL_FLOW.get(node.onnx_node.op_type) if node.need_context() else None
        if control is not None:
            return control(node, inputs, partial(self._body, scope))
        results = node.run(*inputs)
        if self.noise is None:
            return [*results] if _moves(node) else [self.keep(result) for result in results]
        return [self.noise.moved(result, node.op_type) for result in results]

    def _body(
        self, outer: _Scope, evaluator: ReferenceEvaluator, inputs: Sequence[Any]
    ) -> list[Any]:
        return self.graph(evaluator, dict(zip(evaluator.input_names, inputs, strict=True)), outer)

    def _value(self, name: str, scope: _Scope) -> Any:
        found = scope.find(name)
        if found is not None:
            return found.values[name]
        while scope.outer is not None:
            scope = scope.outer
        scope.values[name] = self.keep(array_of(self.weights[name]))
        return scope.values[name]


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Return the nodes that outputs depend on; others may fail, which must not matter."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(reads(node.onnx_node))
    return kept[::-1]


def _index_columns(nodes: Sequence[Any], outputs: Sequence[str]) -> set[str]:
    """Return the concatenations of index columns that only one scatter reads."""
    readers = Counter(name for node in nodes for name in reads(node.onnx_node))
    indices = {node.input[1] for node in nodes if node.op_type == "ScatterND"}
    return {
        node.output[0]
        for node in nodes
        if node.op_type == "Concat" and getattr(node, "axis", None) == -1
        if node.output[0] in indices and readers[node.output[0]] == 1
    } - set(outputs)


def _moves(node: Any) -> bool:
    if node.op_type in ("ScatterElements", "ScatterND"):
        return getattr(node, "reduction", None) in (None, "none", b"none")
    return node.op_type in _MOVES and node.onnx_node.domain == ""


def _widened(value: Any) -> Any:
    """Return float32 as float64, also the results of nodes that make float32, such as Cast."""
    if isinstance(value, list):  # a sequence
        return [_widened(element) for element in value]
    is_single = isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32
    return value.astype(np.float64) if is_single else value


def _flushed(value: Any) -> Any:
    """Return float32 with zero in place of denormal numbers, as in compiled code."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    if not _has_denormal(value):
        return value
    denormal = (np.abs(value) < np.finfo(np.float32).tiny) & (value != 0)
    return np.where(denormal, np.float32(0), value)


def _has_denormal(value: Array) -> bool:
    """Whether any number of float32 is denormal: its exponent is zero, but its mantissa is not."""
    bits = np.ravel(value, order="K").view(np.uint32)
    found: list[slice] = []

    def look(part: slice) -> None:
        doubled = bits[part] << 1  # without the sign
        doubled -= 1  # zero becomes the largest number
        if not found and doubled.min() < _LEAST_NORMAL:
            found.append(part)

    in_pieces(bits.size, 1, look)
    return bool(found)


RunBody: TypeAlias = Callable[[ReferenceEvaluator, Sequence[Any]], list[Any]]
"""Runs an inner graph on its inputs, and returns its outputs."""


class Optional(OpRun):  # type: ignore[misc]
    """The element itself, or None; onnx's own makes a list, which OptionalGetElement refuses."""

    op_domain = ""

    def _run(self, element: Any = None, **attributes: Any) -> Any:
        return (element,)


class Scan(OpRun):  # type: ignore[misc]
    """The attributes of a Scan: the constructor of onnx's own refuses axes and directions."""

    op_domain = ""

    def need_context(self) -> bool:
        """Return True: its body may read values of the outer graph."""
        return True

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        raise AssertionError("`CONTROL_FLOW` runs it")


class SplitToSequence(OpRun):  # type: ignore[misc]
    """Drop the axis of elements of size 1 as PyTorch and ONNX Runtime do, unlike the standard."""

    op_domain = ""

    def _run(self, array: Any, split: Any = None, axis: int = 0, keepdims: int = 1) -> Any:
        size = np.array(1) if split is None else split
        step = int(size) if size.ndim == 0 else 0
        ends = np.arange(step, array.shape[axis], step) if step else size.cumsum()[:-1]
        parts = np.split(array, ends, axis)
        drops = step == 1 and not keepdims
        return ([part.squeeze(axis) if drops else part for part in parts],)


def _if(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    return run(node.then_branch if inputs[0].item() else node.else_branch, [])


def _loop(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    limit, condition, *states = (*inputs, None)[: max(len(inputs), 2)]
    goes_on = condition is None or condition.item()
    rows: list[list[Any]] = [[] for _ in node.body.output_names[1 + len(states) :]]
    # PyTorch sometimes declares a vector of one element, and ONNX Runtime then passes one.
    counter = (1,) * len(node.body.input_types[0].tensor_type.shape.dim)
    step = 0
    while goes_on and (limit is None or step < limit.item()):
        given = [np.full(counter, step, np.int64), np.array(True), *states]
        again, *results = run(node.body, given)
        goes_on, states, step = again.item(), results[: len(states)], step + 1
        for row, result in zip(rows, results[len(states) :], strict=True):
            row.append(result)
    return [*states, *(np.stack(row) if row else np.zeros(0, np.float32) for row in rows)]


def _scan(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    if node.run_params["opsets"][""] >= 9:
        return _scan_one(node, inputs, run)
    images = zip(*inputs[1:], strict=True)  # without lengths, which the importer refuses
    results = [_scan_one(node, image, run) for image in images]
    return [np.stack(parts) for parts in zip(*results, strict=True)]


def _scan_one(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    count = len(inputs) - node.num_scan_inputs
    states = list(inputs[:count])
    axes = getattr(node, "scan_input_axes", None) or [0] * node.num_scan_inputs
    backward = getattr(node, "scan_input_directions", None) or getattr(node, "directions", None)
    scanned = [
        _slices(array, axis, reverse)
        for array, axis, reverse in zip(
            inputs[count:], axes, backward or [0] * len(axes), strict=True
        )
    ]
    rows: list[list[Any]] = [[] for _ in node.body.output_names[count:]]
    for elements in zip(*scanned, strict=True):
        results = run(node.body, [*states, *elements])
        states = results[:count]
        for row, result in zip(rows, results[count:], strict=True):
            row.append(result)
    axes = getattr(node, "scan_output_axes", None) or [0] * len(rows)
    backward = getattr(node, "scan_output_directions", None) or [0] * len(rows)
    stacked = (
        np.stack(row[::-1] if reverse else row, axis)
        for row, axis, reverse in zip(rows, axes, backward, strict=True)
    )
    return [*states, *stacked]


def _slices(array: Any, axis: int, backward: int) -> Iterator[Any]:
    moved = np.moveaxis(array, axis, 0)
    return iter(moved[::-1] if backward else moved)


CONTROL_FLOW: Final = {"If": _if, "Loop": _loop, "Scan": _scan}
CONTROL_FLOW_OPERATORS: Final = (Optional, Scan, SplitToSequence)
"""Replacements of operators of onnx's evaluator."""
