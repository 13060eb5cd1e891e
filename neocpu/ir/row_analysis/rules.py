"""Rules: the axes along which families of operators compute index by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neocpu.ir.row_analysis.independence import DependentRowsError, Independence, OperatorCall, Way

Rule: TypeAlias = Callable[[OperatorCall], Independence]
"""A function that returns the axes of a call, or raises a `DependentRowsError`."""

_ACROSS: Final = "works across the {rows}"
_NOT_FIRST: Final = "does not have the {rows} along its first axis, that of images"
_STEPS: Final = "takes the {rows} for steps of time or features"


def elementwise(call: OperatorCall) -> Independence:
    """Operators that broadcast their inputs, aligning the last axes."""
    ranks = [None if shape is None else len(shape) for shape in call.inputs]
    rank = call.result_rank or max(each or 0 for each in ranks)
    ways = []
    for axis in range(rank):
        aligned = [None if each is None else axis - (rank - each) for each in ranks]
        ways.append(Way([None if own is None or own < 0 else own for own in aligned], [axis]))
    return Independence(ways=ways, broadcasts=True)


def broadcast(call: OperatorCall) -> Independence:
    """An operator that broadcasts its first input to a shape."""
    ways = elementwise(call).ways
    return Independence(ways=[Way(way.inputs[:1], way.results) for way in ways], broadcasts=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMap:
    """A rule for operators on their first input; the other inputs are parameters."""

    along: str = ""  # parameters, by spaces, with the axes it works along; all if one is missing
    dropped: str = ""  # the parameter with those of these axes that its results lack
    added: str = ""  # the parameter with the axes of its results that the input lacks
    order: str = ""  # the parameter with the order of its results' axes; without it, reversed
    why: str = _ACROSS  # the message where the rows lie along an axis that it works along

    def __call__(self, call: OperatorCall) -> Independence:
        along: list[int] = []
        for name in self.along.split():
            if (axes := call.integers(name)) is None:
                return Independence(ways=(), why=self.why)
            along += axes
        order: Sequence[int] = range(call.rank())
        if self.order:
            order = call.integers(self.order) or order[::-1]
        return map_axes(
            call,
            along=along,
            dropped=call.integers(self.dropped) or () if self.dropped else (),
            added=call.integers(self.added) or () if self.added else (),
            order=order,
            why=self.why,
        )


def map_axes(
    call: OperatorCall,
    *,
    along: Sequence[int] | None,
    dropped: Sequence[int] = (),
    added: Sequence[int] = (),
    order: Sequence[int] | None = None,
    why: str = _ACROSS,
) -> Independence:
    """Return the result of `AxisMap` for axes, counted from either end, instead of parameters."""
    rank = call.rank()
    if along is None or not rank:
        return Independence(ways=(), why=why)
    gone, used = ({axis % rank for axis in axes} for axes in (dropped, along))
    left = [axis % rank for axis in order or range(rank) if axis % rank not in gone]
    result_rank = len(left) + len(added)
    new = {axis % result_rank for axis in added}
    places = [axis for axis in range(result_rank) if axis not in new]
    pairs = zip(left, places, strict=True)
    return Independence(ways=[Way([old], [new]) for old, new in pairs if old not in used], why=why)


def from_axis_on(call: OperatorCall) -> Independence:
    """Operators along the attribute ``axis`` and all axes after it."""
    rank, (axis,) = call.rank(), call.integers("axis") or [-1]
    return map_axes(call, along=range(axis % rank, rank) if rank else None)


def along_last_two(call: OperatorCall) -> Independence:
    """Operators on matrices, which lie in the last two axes."""
    return map_axes(call, along=[-2, -1])


def quantisation(call: OperatorCall) -> Independence:
    """Operators with one scale, or with one for each index along an axis."""
    if call.rank(1) > 1:
        raise DependentRowsError("has a scale for each block")
    (axis,), rank = call.integers("axis") or [1], call.rank()
    scales = max((call.shape(index) for index in (1, 2)), default=())
    per_axis = bool(rank and scales) and (scales[0] != 1 or call.shape()[axis % rank] == 1)
    return map_axes(call, along=[axis] if per_axis else [], why="has a scale for each {row}")


def reduction(call: OperatorCall) -> Independence:
    """Reductions over the parameter ``axes``, or over all axes."""
    axes = call.integers("axes") or None
    if axes is None and call.flag("noop_with_empty_axes"):
        axes = []
    return _reduced(call, axes, "reduces over the {rows}")


def arg_extreme(call: OperatorCall) -> Independence:
    """Operators that find the index of an extreme, along the attribute ``axis`` or of all."""
    return _reduced(call, call.integers("axis"), "compares the {rows}")


def _reduced(call: OperatorCall, axes: Sequence[int] | None, why: str) -> Independence:
    dropped = [] if call.flag("keepdims") else axes or []
    return map_axes(call, along=axes, dropped=dropped, why=why)


def tile(call: OperatorCall) -> Independence:
    """Tile; more repeats than the input has axes add axes in front."""
    repeats = call.integers("repeats") or []
    added = max(len(repeats) - call.rank(), 0)
    used = [axis - len(repeats) for axis, times in enumerate(repeats) if times != 1]
    used = [axis for axis in used if axis >= -call.rank()]
    return map_axes(call, along=used, added=range(added), why="repeats the {rows}")


def images(call: OperatorCall) -> Independence:
    """Operators on images, which lie along the first axis; the other inputs are parameters."""
    if not call.images_first:
        raise DependentRowsError("has a layout whose first axis is not that of images")
    return Independence(ways=[Way([0], [0])], why=_NOT_FIRST)


def images_and_grids(call: OperatorCall) -> Independence:
    """Operators on images that read a grid for each image."""
    return Independence(ways=[Way([0, 0], [0])], why=_NOT_FIRST)


def concatenation(call: OperatorCall) -> Independence:
    """Operators that join all inputs along the attribute ``axis``."""
    rank = call.rank()
    (joined,) = call.integers("axis") or [0]
    number = len(call.inputs)
    others = [axis for axis in range(rank) if axis != joined % rank]
    ways = [Way([axis] * number, [axis]) for axis in others]
    return Independence(ways=ways, why="joins in the {axis}")


def stack(call: OperatorCall) -> Independence:
    """Operators that join all inputs along a new axis, the attribute ``axis``."""
    rank, number = call.rank(), len(call.inputs)
    new = (call.integers("axis") or [0])[0] % (rank + 1)
    return Independence(ways=[Way([axis] * number, [axis + (new <= axis)]) for axis in range(rank)])


def gather(call: OperatorCall) -> Independence:
    """Operators that look up indices, the second input, along an axis of the first one."""
    rank, number, axes = call.rank(), call.rank(1), call.integers("axis")
    if axes is None or not rank:
        return Independence(ways=(), why="picks {rows}")
    along = axes[0] % rank
    kept = [
        Way([axis], [axis if axis < along else axis + number - 1])
        for axis in range(rank)
        if axis != along
    ]
    looked_up = [Way([None, axis], [along + axis]) for axis in range(number)]
    return Independence(ways=[*kept, *looked_up], why="picks {rows}")


def matrix_product(call: OperatorCall) -> Independence:
    """Products of matrices, of batches of matrices, or of vectors."""
    left, right = call.rank(0), call.rank(1)
    rank = max(left, right, 2) - (left == 1) - (right == 1)
    ends = (left > 1) + (right > 1)
    ways = []
    for axis in range(rank - ends):  # matrix by matrix
        back = rank - ends - axis
        first, second = left - 2 - back, right - 2 - back
        own = [place if place >= 0 else None for place in (first, second)]
        ways.append(Way(own, [axis]))
    if left > 1:
        ways.append(Way([left - 2, None], [rank - ends]))
    if right > 1:
        ways.append(Way([None, right - 1], [rank - 1]))
    return Independence(ways=ways, why="sums over the {rows}", broadcasts=True)


def gemm(call: OperatorCall) -> Independence:
    """Gemm: a product of two matrices, and a bias that is broadcast to it."""
    row, column = int(call.flag("transA")), 1 - int(call.flag("transB"))
    bias = call.rank(2)
    ways = [
        Way([row, None, 0 if bias == 2 else None], [0]),
        Way([None, column, bias - 1 if bias else None], [1]),
    ]
    return Independence(ways=ways, why="sums over the {rows}", broadcasts=True)


def recurrent(call: OperatorCall) -> Independence:
    """ONNX's recurrent operators: each sequence has its length and its initial states."""
    y, state = (0, 0) if call.flag("layout") else (2, 1)
    way = Way([state, None, None, None, 0, state, state], [y, state, state])
    return Independence(ways=[way], why=_STEPS)


def recurrent_layer(call: OperatorCall) -> Independence:
    """The planner's recurrent layer, whose optional inputs come last and have names."""
    batch = 0 if call.flag("batch_first") else 1
    axes = {"lengths": 0, "initial_h": batch, "initial_c": batch}
    named = [axes.get(name) for name in call.strings("given")]
    others = len(call.inputs) - len(named) - 1
    return Independence(ways=[Way([batch, *[None] * others, *named], [batch])], why=_STEPS)
