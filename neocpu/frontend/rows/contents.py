"""The contents of tensors that decide shapes: constants and counts, known before any run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
from onnx import TensorProto

from neocpu.frontend.rows.extent import Extent, product
from neocpu.frontend.rows.row_graph import MOST_CONTENTS, RowGraph
from neocpu.frontend.rows.row_value import Value
from neocpu.frontend.rows.step import Step

_TRUE, _FALSE = Extent(1), Extent(0)
_KINDS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
_Pair = Callable[[RowGraph, Extent, Extent], "Extent | None"]


def evaluate(step: Step) -> Value | None:
    """Return a node's result if its contents follow from known contents, else None."""
    node = step.node
    if node.op_type in ("Shape", "Size"):
        return _measure(step)
    operands = [value for value in step.operands if value is not None]
    if not operands or len(node.output) != 1 or any(value.contents is None for value in operands):
        return None
    rule = _RULES.get(node.op_type)
    found = rule(step, operands) if rule else None
    if found is None or found.size > MOST_CONTENTS:
        return None
    elements = found.reshape(-1).tolist()
    if any(each is None for each in elements) or not elements:
        return None
    kind = _kind(step, operands)
    return _value(step, tuple(elements), found.shape, kind) if kind in _KINDS else None


def _value(step: Step, contents: tuple[Extent, ...], shape: Sequence[int], kind: int) -> Value:
    return Value(
        name=step.node.output[0], kind=kind, shape=tuple(shape), contents=contents, pending=True
    )


def _kind(step: Step, operands: Sequence[Value]) -> int:
    if step.node.op_type == "Cast":
        return int(step.attribute("to", 0))
    if step.node.op_type in (*_COMPARED, "And", "Or", "Not", "Xor"):
        return int(TensorProto.BOOL)
    if step.node.op_type == "ConstantOfShape":
        return int(TensorProto.INT64)
    return operands[-1].kind if step.node.op_type == "Where" else operands[0].kind


def _measure(step: Step) -> Value:
    """Shape and Size."""
    data = step.operand(0)
    if step.node.op_type == "Size":
        size = product(data.extents)
        assert size is not None
        return _value(step, (size,), (), TensorProto.INT64)
    start, end = (step.attribute(name, default) for name, default in (("start", 0), ("end", None)))
    part = data.extents[slice(start, end)]
    return _value(step, part, (len(part),), TensorProto.INT64)


def _objects(value: Value) -> np.ndarray:
    assert value.contents is not None
    array = np.empty(len(value.contents), object)
    array[:] = value.contents
    return array.reshape(value.shape if len(array) else (0,))


def _pairwise(operation: _Pair) -> Callable[[Step, Sequence[Value]], np.ndarray]:
    def rule(step: Step, operands: Sequence[Value]) -> np.ndarray:
        def both(first: Extent | None, second: Extent) -> Extent | None:
            return None if first is None else operation(step.graph, first, second)

        combined: np.ndarray = reduce(
            lambda a, b: np.asarray(np.frompyfunc(both, 2, 1)(a, b), object),
            map(_objects, operands),
        )
        return combined

    return rule


def _folded(operation: _Pair) -> Callable[[Step, Sequence[Value]], np.ndarray | None]:
    def rule(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
        data, axes = operands[0], operands[1:]
        if data.rank != 1 or (axes and axes[0].known not in ((0,), (-1,))):
            return None
        if not axes and step.attribute("noop_with_empty_axes", 0):
            return None
        total: Extent | None = None
        for number, each in enumerate(data.contents or ()):
            total = each if number == 0 else total and operation(step.graph, total, each)
        found = np.empty((1,) if step.attribute("keepdims", 1) else (), object)
        found[...] = total
        return found

    return rule


def _times(_: RowGraph, first: Extent, second: Extent) -> Extent | None:
    return product((first, second))


def _divided(_: RowGraph, first: Extent, second: Extent) -> Extent | None:
    if not second.known or second.constant <= 0 or first.least < 0:
        return None
    if first.known:
        return Extent(first.constant // second.constant)
    return first.divided(second.constant)


def _compared(decide: Callable[[int, int], bool | None]) -> _Pair:
    """Return a comparison that is decided by the bounds of a difference."""

    def rule(_: RowGraph, first: Extent, second: Extent) -> Extent | None:
        difference = first - second
        decided = decide(difference.least, difference.most)
        return None if decided is None else (_TRUE if decided else _FALSE)

    return rule


def _sign(when: Callable[[int], bool]) -> Callable[[int, int], bool | None]:
    """Return a decision about a condition that changes once: it must agree at both bounds."""

    def decide(least: int, most: int) -> bool | None:
        return when(least) if when(least) == when(most) else None

    return decide


def _is_zero(least: int, most: int) -> bool | None:
    if least == most == 0:
        return True
    return False if least > 0 or most < 0 else None


_COMPARED: Mapping[str, _Pair] = {
    "Equal": _compared(_is_zero),
    "Greater": _compared(_sign(lambda number: number > 0)),
    "GreaterOrEqual": _compared(_sign(lambda number: number >= 0)),
    "Less": _compared(_sign(lambda number: number < 0)),
    "LessOrEqual": _compared(_sign(lambda number: number <= 0)),
}


def _logical(operation: Callable[[int, int], int]) -> _Pair:
    def rule(_: RowGraph, first: Extent, second: Extent) -> Extent | None:
        known = first.known and second.known
        return Extent(operation(first.constant, second.constant)) if known else None

    return rule


def _concat(_: Step, operands: Sequence[Value]) -> np.ndarray | None:
    if any(value.rank != 1 for value in operands):
        return None
    return np.concatenate([_objects(value) for value in operands])


def _gather(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
    places = operands[1].known
    if operands[0].rank != 1 or places is None:
        return None
    if any(not -operands[0].size <= place < operands[0].size for place in places):
        return None
    index = np.array(places, np.int64).reshape(operands[1].shape)
    found = np.empty(index.shape, object)
    found[...] = _objects(operands[0])[index]
    return found


def _slice(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
    """Slice of the first axis."""
    limits = [value.known for value in operands[1:]]
    if operands[0].rank == 0 or any(limit is None or len(limit) != 1 for limit in limits):
        return None
    start, end, axis, stride = [limit[0] for limit in limits if limit is not None] + [0, 1][
        len(limits) - 2 :
    ]
    if axis not in (0, -operands[0].rank) or stride == 0:
        return None
    extent = operands[0].shape[0]
    # With a negative stride, an end before the first element includes it.
    whole = stride < 0 and end < -extent
    return _objects(operands[0])[start : None if whole else end : stride]


def _reshaped(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
    """Reshape, Squeeze and Unsqueeze of tensors with one element or one axis."""
    data = _objects(operands[0])
    op_type = step.node.op_type
    if op_type == "Reshape":
        wanted = operands[1].known
        if wanted is None or 0 in wanted or math.prod(wanted) not in (data.size, -data.size):
            wanted = (-1,) if wanted == (-1,) else None
        return None if wanted is None else data.reshape(wanted)
    if op_type == "Squeeze":
        return data.reshape(()) if data.size == 1 else None
    return data.reshape((1,)) if data.ndim == 0 and operands[1].size == 1 else None


def _counted_up(_: Step, operands: Sequence[Value]) -> np.ndarray | None:
    """Range of integers."""
    limits = [value.known for value in operands]
    if any(limit is None or len(limit) != 1 for limit in limits):
        return None
    numbers = range(*(limit[0] for limit in limits if limit))
    found = np.empty(len(numbers), object)
    found[:] = [Extent(number) for number in numbers]
    return found


def _transposed(step: Step, operands: Sequence[Value]) -> np.ndarray:
    return _objects(operands[0]).transpose(step.attribute("perm", None))


def _cast(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
    booleans = step.attribute("to", 0) == TensorProto.BOOL
    return None if booleans and operands[0].kind != TensorProto.BOOL else _objects(operands[0])


def _where(_: Step, operands: Sequence[Value]) -> np.ndarray | None:
    condition = operands[0].known
    if condition is None:
        return None
    chosen = np.array(condition, bool).reshape(operands[0].shape)
    return np.asarray(np.where(chosen, _objects(operands[1]), _objects(operands[2])), object)


def _filled(step: Step, operands: Sequence[Value]) -> np.ndarray | None:
    """ConstantOfShape of integers."""
    tensor = step.attribute("value", None)
    if tensor is None or tensor.data_type != TensorProto.INT64 or operands[0].known is None:
        return None
    value = np.frombuffer(tensor.raw_data, np.int64) if tensor.raw_data else tensor.int64_data
    if len(operands[0].known) > 1 or math.prod(operands[0].known) > MOST_CONTENTS:
        return None
    found = np.empty(operands[0].known, object)
    found[...] = Extent(int(value[0]))
    return found


_RULES: Mapping[str, Callable[[Step, Sequence[Value]], np.ndarray | None]] = {
    **{name: _pairwise(operation) for name, operation in _COMPARED.items()},
    "Add": _pairwise(lambda _, a, b: a + b),
    "And": _pairwise(_logical(lambda a, b: a & b)),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Div": _pairwise(_divided),
    "Gather": _gather,
    "Identity": lambda _, operands: _objects(operands[0]),
    "Max": _pairwise(
        lambda graph, a, b: graph.larger(a, b) if max(a.least, b.least) >= 0 else None
    ),
    "Min": _pairwise(
        lambda graph, a, b: graph.smaller(a, b) if min(a.least, b.least) >= 0 else None
    ),
    "Mul": _pairwise(_times),
    "Not": lambda _, operands: np.frompyfunc(
        lambda a: Extent(1 - a.constant) if a.known else None, 1, 1
    )(_objects(operands[0])),
    "Or": _pairwise(_logical(lambda a, b: a | b)),
    "Range": _counted_up,
    "ReduceMax": _folded(
        lambda graph, a, b: graph.larger(a, b) if max(a.least, b.least) >= 0 else None
    ),
    "ReduceMin": _folded(
        lambda graph, a, b: graph.smaller(a, b) if min(a.least, b.least) >= 0 else None
    ),
    "ReduceProd": _folded(_times),
    "ReduceSum": _folded(lambda _, a, b: a + b),
    "Reshape": _reshaped,
    "Slice": _slice,
    "Squeeze": _reshaped,
    "Sub": _pairwise(lambda _, a, b: a - b),
    "Transpose": _transposed,
    "Unsqueeze": _reshaped,
    "Where": _where,
    "Xor": _pairwise(_logical(lambda a, b: a ^ b)),
}
