"""Values that are known before the model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu.foundation.errors import ModelError
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

Array: TypeAlias = npt.NDArray[Any]


class Unknown(Enum):
    """The reason why a value is not known: the run decides it, or a node is not rewritten yet."""

    RUN = "run"
    YET = "yet"


Knowledge: TypeAlias = Array | Unknown

_MAX_ELEMENTS: Final = 4096
"""Elements of a value that is computed here: a condition, a count, or a shape that decides them."""

_COMPUTED: Final = frozenset(
    """
    Abs Add And Cast CastLike Ceil Concat Constant ConstantOfShape Div Equal Expand Flatten Floor
    Gather Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range
    ReduceMax ReduceMin ReduceProd ReduceSum Relu Reshape Sign Slice Sqrt Squeeze Sub Tile Transpose
    Unsqueeze Where Xor
    """.split()
)
"""Operators that conditions and counts are computed with."""

_REWRITTEN: Final = frozenset(
    """
    ConcatFromSequence If Loop Optional OptionalGetElement OptionalHasElement Scan SequenceAt
    SequenceLength SplitToSequence
    """.split()
)
"""Operators that are rewritten, perhaps in the next round."""


_KEEPING: Final = ("Identity", "Squeeze", "Unsqueeze", "Reshape")
"""Operators that return a value of one element unchanged."""


class KnownValues:
    """Computes small values, each once; `pending` are outputs of nodes not rewritten yet."""

    def __init__(
        self, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], pending: Iterable[str]
    ) -> None:
        self._opsets = list(model.opset_import)
        self._shapes = dict(shapes)
        self._pending = set(pending)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._known: dict[str, Knowledge] = {}

    def add(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Add nodes that are final, in order."""
        self._pending.difference_update(name for node in nodes for name in node.output)
        self._makers |= {name: node for node in nodes for name in node.output if name}

    def add_tensors(self, tensors: Iterable[onnx.TensorProto]) -> None:
        self._tensors |= {tensor.name: tensor for tensor in tensors}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, or None if it is not known."""
        if name in self._tensors:
            return tuple(self._tensors[name].dims)
        return self._shapes.get(name)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is a constant of the model."""
        return name in self._tensors

    def value(self, name: str) -> Knowledge:
        """Return a value, or why it is not known."""
        stack = [name]
        while stack:  # not recursive, because a chain of nodes may exceed Python's stack
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            node = self._makers.get(top)
            needed = () if node is None or not _is_computed(node) else node.input
            missing = [each for each in needed if each and each not in self._known]
            if missing:
                stack += missing
                continue
            self._known[top] = self._find(top, node)
            stack.pop()
        return self._known[name]

    def bound(self, name: str) -> int | None:
        """Return an upper bound of an integer scalar that holds in every run, or None."""
        known, node = self.value(name), self._makers.get(name)
        if isinstance(known, np.ndarray):
            return int(known.item()) if known.size == 1 else None
        if node is None or node.domain not in STANDARD_DOMAINS:
            return None
        if node.op_type in _KEEPING:
            return self.bound(node.input[0])
        if node.op_type == "Clip":
            return self.bound(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if node.op_type not in ("Min", "Where"):
            return None
        bounds = [self.bound(each) for each in node.input[node.op_type == "Where" :]]
        given = [bound for bound in bounds if bound is not None]
        if node.op_type == "Min":
            return min(given, default=None)
        return max(given) if len(given) == len(bounds) else None

    def _find(self, name: str, node: onnx.NodeProto | None) -> Knowledge:
        if name in self._tensors:
            return _small(array_of(self._tensors[name]))
        if name in self._pending:
            return Unknown.YET
        if node is None or node.domain not in STANDARD_DOMAINS:
            return Unknown.RUN
        if node.op_type in ("Shape", "Size"):
            return self._of_shape(node)
        if node.op_type in _REWRITTEN:
            return Unknown.YET
        if node.op_type not in _COMPUTED:
            return Unknown.RUN
        inputs = [self._known[each] for each in node.input if each]
        for reason in (Unknown.RUN, Unknown.YET):
            if any(each is reason for each in inputs):
                return reason
        return self._computed(name, node)

    def _of_shape(self, node: onnx.NodeProto) -> Knowledge:
        shape = self.shape(node.input[0])
        if shape is None:
            return Unknown.YET
        if node.op_type == "Size":
            return np.asarray(np.prod(shape, dtype=np.int64))
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        return np.array(shape[slice(ends.get("start"), ends.get("end"))], np.int64)

    def _computed(self, name: str, node: onnx.NodeProto) -> Knowledge:
        given = {each: self._known[each] for each in node.input if each}
        if _made_of(node, [self._known[each] for each in node.input if each]) > _MAX_ELEMENTS:
            return Unknown.RUN
        # Imported here, because few models need it.
        from neocpu.frontend.numpy_operators.table import evaluator_of_nodes

        try:
            evaluator = evaluator_of_nodes([node], given, [name], self._opsets)
            with np.errstate(all="ignore"):  # overflow and 0/0 are the model's own
                result = evaluator.run(None, given)[0]
        except Exception:  # any error; the importer reports it
            return Unknown.RUN
        return _small(np.asarray(result))


def _made_of(node: onnx.NodeProto, inputs: Sequence[Any]) -> float:
    """Return the approximate size of what an operator makes, if it can be large; else 0."""
    if node.op_type == "ConstantOfShape":
        return float(np.prod(inputs[0], dtype=np.float64))
    if node.op_type in ("Expand", "Tile"):
        return float(inputs[0].size * np.prod(inputs[1], dtype=np.float64))
    if node.op_type == "Range":
        start, limit, delta = (float(each) for each in inputs)
        return abs((limit - start) / delta) if delta else 0.0
    return 0.0


def _is_computed(node: onnx.NodeProto) -> bool:
    return node.domain in STANDARD_DOMAINS and node.op_type in _COMPUTED


def _small(array: Array) -> Knowledge:
    return array if array.size <= _MAX_ELEMENTS else Unknown.RUN


def single(value: Array, node: onnx.NodeProto, what: str) -> Any:
    """Return the single element of a constant that decides what a node does, or raise a
    `ModelError`."""
    if value.size != 1:
        raise ModelError(
            f"{describe(node)} has a {what} of shape {list(value.shape)}; it takes one value"
        )
    return value.item()
