"""The contents of tensors that decide shapes: constants and counts, known before any run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from neocpu.frontend.rows.row_graph import MOST_CONTENTS, RowGraph, Step
from neocpu.frontend.rows.row_value import Extent, Value, product

_KINDS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
_Extents = npt.NDArray[Any]  # its elements are `Extent`
_Pair = Callable[[RowGraph, Extent, Extent], Extent]
_Rule = Callable[..., Any]  # takes the step and the contents of its operands


class _UnknownError(Exception):
    """An error: known contents do not decide a node's."""


def evaluate(step: Step) -> Value | None:
    """Return a node's result if its contents follow from known contents, else None."""
    if step.node.op_type in ("Shape", "Size"):
        return _measure(step)
    operands = [value for value in step.operands if value is not None]
    rule = _RULES.get(step.node.op_type)
    if not rule or not operands or len(step.node.output) != 1:
        return None
    try:
        found = np.asarray(rule(step, *map(_contents, operands)), object)
    except _UnknownError:
        return None
    kind = _kind(step, operands)
    if not 0 < found.size <= MOST_CONTENTS or kind not in _KINDS:
        return None
    return _value(step, found.reshape(-1).tolist(), found.shape, kind)


def _value(step: Step, contents: Sequence[Extent], shape: Sequence[int], kind: int) -> Value:
    name = step.node.output[0]
    return Value(name=name, kind=kind, shape=tuple(shape), contents=tuple(contents), pending=True)


def _kind(step: Step, operands: Sequence[Value]) -> int:
    if step.node.op_type == "Cast":
        return int(step.attribute("to", 0))
    if step.node.op_type in (*_COMPARED, "And", "Or", "Not", "Xor"):
        return int(TensorProto.BOOL)
    if step.node.op_type == "ConstantOfShape":
        return int(TensorProto.INT64)
    return operands[-1].kind if step.node.op_type == "Where" else operands[0].kind


def _measure(step: Step) -> Value:
    data = step.operand(0)
    if step.node.op_type == "Size":
        return _value(step, [_some(product(data.extents))], (), TensorProto.INT64)
    part = data.extents[slice(step.attribute("start", 0), step.attribute("end", None))]
    return _value(step, part, (len(part),), TensorProto.INT64)


def _contents(value: Value) -> _Extents:
    if value.contents is None:
        raise _UnknownError
    array = np.empty(len(value.contents), object)
    array[:] = value.contents
    return array.reshape(value.shape if len(array) else (0,))


def _some(extent: Extent | None) -> Extent:
    if extent is None:
        raise _UnknownError
    return extent


def _number(extent: Extent) -> int:
    if not extent.known:
        raise _UnknownError
    return extent.constant


def _numbers(extents: _Extents, size: int | None = None) -> npt.NDArray[np.int64]:
    if size not in (None, extents.size):
        raise _UnknownError
    found = [_number(each) for each in extents.flat]
    return np.array(found, np.int64).reshape(extents.shape)


def _pairwise(operation: _Pair) -> _Rule:
    def rule(step: Step, *operands: _Extents) -> Any:
        return reduce(np.frompyfunc(partial(operation, step.graph), 2, 1), operands)

    return rule


def _folded(operation: _Pair) -> _Rule:
    def rule(step: Step, data: _Extents, *axes: _Extents) -> _Extents:
        if (
            data.ndim != 1
            or not data.size
            or any(_numbers(each, 1) not in (0, -1) for each in axes)
        ):
            raise _UnknownError
        if not axes and step.attribute("noop_with_empty_axes", 0):
            raise _UnknownError
        total = reduce(partial(operation, step.graph), data)
        return np.full((1,) if step.attribute("keepdims", 1) else (), total, object)

    return rule


def _times(_: RowGraph, first: Extent, second: Extent) -> Extent:
    return _some(product((first, second)))


def _divided(_: RowGraph, first: Extent, second: Extent) -> Extent:
    divisor = _number(second)
    if divisor <= 0 or first.least < 0:
        raise _UnknownError
    return Extent(first.constant // divisor) if first.known else _some(first.divided(divisor))


def _larger(graph: RowGraph, first: Extent, second: Extent) -> Extent:
    if max(first.least, second.least) < 0:
        raise _UnknownError
    return graph.larger(first, second)


def _smaller(graph: RowGraph, first: Extent, second: Extent) -> Extent:
    if min(first.least, second.least) < 0:
        raise _UnknownError
    return graph.smaller(first, second)


def _compared(when: Callable[[int], bool]) -> _Pair:
    """Return a comparison decided by a difference; the condition changes once, so both bounds must
    agree.
    """

    def rule(_: RowGraph, first: Extent, second: Extent) -> Extent:
        difference = first - second
        decided = when(difference.least)
        if decided != when(difference.most):
            raise _UnknownError
        return Extent(int(decided))

    return rule


def _equal(_: RowGraph, first: Extent, second: Extent) -> Extent:
    difference = first - second
    if difference.least <= 0 <= difference.most and difference.least != difference.most:
        raise _UnknownError
    return Extent(int(difference.least == 0))


_COMPARED: Mapping[str, _Pair] = {
    "Equal": _equal,
    "Greater": _compared(lambda number: number > 0),
    "GreaterOrEqual": _compared(lambda number: number >= 0),
    "Less": _compared(lambda number: number < 0),
    "LessOrEqual": _compared(lambda number: number <= 0),
}


def _concat(_: Step, *parts: _Extents) -> _Extents:
    if any(part.ndim != 1 for part in parts):
        raise _UnknownError
    return np.concatenate(parts)


def _gather(_: Step, data: _Extents, indices: _Extents) -> Any:
    places = _numbers(indices)
    if data.ndim != 1 or ((places < -data.size) | (places >= data.size)).any():
        raise _UnknownError
    return data[places]


def _slice(_: Step, data: _Extents, *limits: _Extents) -> _Extents:
    given = [int(_numbers(limit, 1).item()) for limit in limits]
    start, end, axis, stride = given + [0, 1][len(given) - 2 :]
    if data.ndim == 0 or axis not in (0, -data.ndim) or stride == 0:
        raise _UnknownError
    # With a negative stride, an end before the first element includes it.
    whole = stride < 0 and end < -len(data)
    return data[start : None if whole else end : stride]


def _reshaped(_: Step, data: _Extents, shape: _Extents) -> _Extents:
    wanted = _numbers(shape)
    if wanted.tolist() != [-1] and (0 in wanted or abs(math.prod(wanted)) != data.size):
        raise _UnknownError
    return data.reshape(wanted.tolist())


def _squeezed(_: Step, data: _Extents, *__: _Extents) -> _Extents:
    if data.size != 1:
        raise _UnknownError
    return data.reshape(())


def _unsqueezed(_: Step, data: _Extents, axes: _Extents) -> _Extents:
    if data.ndim or axes.size != 1:
        raise _UnknownError
    return data.reshape((1,))


def _counted_up(_: Step, *limits: _Extents) -> list[Extent]:
    return [Extent(number) for number in range(*(_numbers(each, 1).item() for each in limits))]


def _cast(step: Step, data: _Extents) -> _Extents:
    if step.attribute("to", 0) == TensorProto.BOOL != step.operand(0).kind:
        raise _UnknownError
    return data


def _filled(step: Step, shape: _Extents) -> _Extents:
    tensor, wanted = step.attribute("value", None), _numbers(shape)
    if tensor is None or tensor.data_type != TensorProto.INT64:
        raise _UnknownError
    value = np.frombuffer(tensor.raw_data, np.int64) if tensor.raw_data else tensor.int64_data
    if wanted.size > 1 or math.prod(wanted) > MOST_CONTENTS:
        raise _UnknownError
    return np.full(wanted.tolist(), Extent(int(value[0])), object)


_RULES: Mapping[str, _Rule] = {
    **{name: _pairwise(operation) for name, operation in _COMPARED.items()},
    "Add": _pairwise(lambda _, a, b: a + b),
    "And": _pairwise(lambda _, a, b: Extent(_number(a) & _number(b))),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Div": _pairwise(_divided),
    "Gather": _gather,
    "Identity": lambda _, data: data,
    "Max": _pairwise(_larger),
    "Min": _pairwise(_smaller),
    "Mul": _pairwise(_times),
    "Not": lambda _, data: np.frompyfunc(lambda a: Extent(1 - _number(a)), 1, 1)(data),
    "Or": _pairwise(lambda _, a, b: Extent(_number(a) | _number(b))),
    "Range": _counted_up,
    "ReduceMax": _folded(_larger),
    "ReduceMin": _folded(_smaller),
    "ReduceProd": _folded(_times),
    "ReduceSum": _folded(lambda _, a, b: a + b),
    "Reshape": _reshaped,
    "Slice": _slice,
    "Squeeze": _squeezed,
    "Sub": _pairwise(lambda _, a, b: a - b),
    "Transpose": lambda step, data: data.transpose(step.attribute("perm", None)),
    "Unsqueeze": _unsqueezed,
    "Where": lambda _, which, a, b: np.where(_numbers(which).astype(bool), a, b),
    "Xor": _pairwise(lambda _, a, b: Extent(_number(a) ^ _number(b))),
}
