"""Where an operator's outputs have the batch, if its inputs have it: one rule for each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int, ...]

_TO_THE_END: Final = 2**31 - 1
"""A Slice's end that means all there is, as exporters write it, or more."""


class CannotBatch(Exception):
    """Images would be mixed, or lose their dimension; the message continues "Reshape 'name' …"."""


@dataclass
class Site(ABC):
    """A node of a model of one image, as a rule sees it.

    Attributes
    ----------
    attributes : mapping
    inputs : tuple of shape or None
        None for an input that is left out.
    output : shape
        Of the first output.
    batched : mapping of int to int
        Positions of the inputs that differ from image to image, at least one, and in which
        dimension they have the batch. Its extent is 1.
    """

    attributes: Mapping[str, Any]
    inputs: tuple[Shape | None, ...]
    output: Shape
    batched: Mapping[int, int]

    @abstractmethod
    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an input; None if it is left out, or not constant."""

    @abstractmethod
    def set_extent(self, index: int, position: int) -> None:
        """Write the batch into a constant input of one dimension."""

    @abstractmethod
    def set_target(self, axis: int) -> None:
        """Make the constant second input the output's shape, with the batch in ``axis``."""

    @abstractmethod
    def repeat(self, index: int, axis: int) -> None:
        """Repeat an input that is the same for all images along ``axis``."""

    def rank(self, index: int = 0) -> int:
        """Return an input's number of dimensions."""
        shape = self.inputs[index] if index < len(self.inputs) else None
        return 0 if shape is None else len(shape)

    def only(self, index: int = 0) -> int:
        """Return where an input has the batch, which no other may have."""
        if set(self.batched) != {index}:
            raise CannotBatch("takes from each image what it takes from all")
        return self.batched[index]

    def listed(self, attribute: str) -> list[int] | None:
        """Return an attribute's integers; None if there is none."""
        values = self.attributes.get(attribute)
        return None if values is None else [int(each) for each in values]

    def integers(self, index: int) -> list[int] | None:
        """Return a constant input's integers; None if it is left out."""
        if index >= len(self.inputs) or self.inputs[index] is None:
            return None
        values = self.constant(index)
        if values is None:
            raise CannotBatch(f"has an input {index} that is no constant")
        return [int(each) for each in values.reshape(-1)]


Rule: TypeAlias = Callable[[Site], int | Sequence[int]]
"""Returns the dimension of the batch in all outputs, or in each."""


def _elementwise(site: Site) -> int:
    """Broadcast: dimensions are aligned at their ends."""
    rank = len(site.output)
    axes = {rank - site.rank(index) + axis for index, axis in site.batched.items()}
    if len(axes) > 1:
        raise CannotBatch("joins tensors that have the batch in different dimensions")
    (axis,) = axes
    if site.output[axis] != 1:
        raise CannotBatch("spreads an image over the dimension of the batch")
    return axis


def _image(site: Site) -> int:
    """Take NCHW images, one by one, and what is the same for all of them."""
    return _first(site, site.only())


def _image_and_grid(site: Site) -> int:
    if dict(site.batched) != {0: 0, 1: 0}:
        raise CannotBatch("needs both its inputs from each image")
    return 0


def _first(site: Site, axis: int) -> int:
    if axis != 0:
        raise CannotBatch(f"gets the batch in dimension {axis}")
    return axis


def _apart(axis: int, used: list[int], rank: int, what: str) -> int:
    """Return ``axis``, which must not be one that the operator works along."""
    if axis in {each % rank for each in used}:
        raise CannotBatch(what)
    return axis


def _along(default: int) -> Rule:
    """Work along one dimension."""

    def rule(site: Site) -> int:
        used = [int(site.attributes.get("axis", default))]
        return _apart(site.only(), used, site.rank(), "works across the images of a batch")

    return rule


def _quantisation(site: Site) -> int:
    """Take scales of the whole tensor, or one for each place along a dimension."""
    axis, rank = site.only(), site.rank()
    if site.rank(1) > 1:
        raise CannotBatch("has scales of blocks")
    used = [int(site.attributes.get("axis", 1))] if site.rank(1) else []
    return _apart(axis, used, rank, "has a scale for each image of a batch")


def _layer_norm(site: Site) -> int:
    rank = site.rank()
    first = int(site.attributes.get("axis", -1)) % rank
    used = list(range(first, rank))
    return _apart(site.only(), used, rank, "normalises across the images of a batch")


def _last_two(site: Site) -> int:
    rank = site.rank()
    return _apart(site.only(), [rank - 2, rank - 1], rank, "works across the images of a batch")


def _cumulative(site: Site) -> int:
    used = site.integers(1) or [0]
    return _apart(site.only(), used, site.rank(), "sums across the images of a batch")


def _concat(site: Site) -> int:
    axes = set(site.batched.values())
    if len(axes) > 1:
        raise CannotBatch("joins tensors that have the batch in different dimensions")
    (axis,) = axes
    used = [int(site.attributes["axis"])]
    _apart(axis, used, site.rank(), "joins in the dimension of the batch")
    for index in range(len(site.inputs)):
        if index not in site.batched:
            site.repeat(index, axis)
    return axis


def _gather(site: Site) -> int:
    along = int(site.attributes.get("axis", 0)) % site.rank()
    if set(site.batched) == {1}:  # an embedding: indices of each image into a table of all
        return along + site.batched[1]
    axis = _apart(site.only(), [along], site.rank(), "picks images of a batch")
    return axis if axis < along else axis + site.rank(1) - 1


def _slice(site: Site) -> int:
    axis, starts, ends = site.only(), site.integers(1) or [], site.integers(2) or []
    axes = site.integers(3) or list(range(len(starts)))
    steps = site.integers(4) or [1] * len(starts)
    for used, start, end, step in zip(axes, starts, ends, steps, strict=True):
        whole = start == 0 and end >= _TO_THE_END and step == 1
        if used % site.rank() == axis and not whole:
            raise CannotBatch("picks images of a batch")
    return axis


def _squeeze(site: Site) -> int:
    axes, rank = site.integers(1), site.rank()
    if axes is None:
        raise CannotBatch("drops the dimension of the batch")
    axis = _apart(site.only(), axes, rank, "drops the dimension of the batch")
    return axis - sum(each % rank < axis for each in axes)


def _unsqueeze(site: Site) -> int:
    rank = len(site.output)
    added = {each % rank for each in site.integers(1) or []}
    return [each for each in range(rank) if each not in added][site.only()]


def _transpose(site: Site) -> int:
    perm = site.listed("perm") or list(range(site.rank()))[::-1]
    return perm.index(site.only())


def _reduce(site: Site) -> int:
    axes, rank = site.integers(1), site.rank()
    if not axes:
        if site.attributes.get("noop_with_empty_axes"):
            return site.only()
        axes = list(range(rank))
    axis = _apart(site.only(), axes, rank, "reduces over the images of a batch")
    if site.attributes.get("keepdims", 1):
        return axis
    return axis - sum(each % rank < axis for each in axes)


def _arg_extreme(site: Site) -> int:
    rank, along = site.rank(), int(site.attributes.get("axis", 0))
    axis = _apart(site.only(), [along], rank, "compares the images of a batch")
    return axis if site.attributes.get("keepdims", 1) else axis - (along % rank < axis)


def _pad(site: Site) -> int:
    axis, pads = site.only(), site.integers(1) or []
    axes = site.integers(3) or list(range(site.rank()))
    for index, used in enumerate(axes):
        if used % site.rank() == axis and (pads[index] or pads[index + len(axes)]):
            raise CannotBatch("pads the dimension of the batch")
    return axis


def _flatten(site: Site) -> int:
    axis, shape = _first(site, site.only()), site.inputs[0]
    assert shape is not None
    at = int(site.attributes.get("axis", 1))
    rows = shape[: at + len(shape) if at < 0 else at]
    if not rows or math.prod(rows) != 1:
        raise CannotBatch("merges the dimension of the batch with another")
    return axis


def _reshape(site: Site) -> int:
    """Keep what lies before the batch, and give the target an extent for it."""
    axis, shape = site.only(), site.inputs[0]
    assert shape is not None
    if site.integers(1) is None:
        raise CannotBatch("has a shape that is no constant")
    before = math.prod(shape[:axis])
    places = [
        place
        for place, extent in enumerate(site.output)
        if extent == 1 and math.prod(site.output[:place]) == before
    ]
    if not places:
        raise CannotBatch(
            f"to {'x'.join(map(str, site.output))} leaves the batch no dimension of its own"
        )
    place = axis if axis in places else places[0]
    site.set_target(place)
    return place


def _expand(site: Site) -> int:
    if site.integers(1) is None:
        raise CannotBatch("has a shape that is no constant")
    return _elementwise(site)


def _tile(site: Site) -> int:
    axis, repeats = site.only(), site.integers(1) or []
    if repeats[axis] != 1:
        raise CannotBatch("repeats the images of a batch")
    return axis


def _resize(site: Site) -> int:
    axis = _image(site)
    axes = site.listed("axes") or list(range(site.rank()))
    sizes = site.integers(3)
    for place, used in enumerate(axes):
        if sizes is not None and used % site.rank() == axis:
            site.set_extent(3, place)
    return axis


def _gemm(site: Site) -> int:
    if site.attributes.get("transA", 0):
        raise CannotBatch("sums over the images of a batch")
    axis = _first(site, site.only())
    if site.rank(2) == 2 and site.inputs[2] is not None and site.inputs[2][0] != 1:
        raise CannotBatch("adds rows of several images")
    return axis


def _matmul(site: Site) -> int:
    left, right = site.batched.get(0), site.batched.get(1)
    a, b = site.rank(0), site.rank(1)
    if left == a - 1 or (right is not None and right >= max(b - 2, 0)):
        raise CannotBatch("sums over the images of a batch")
    if b == 1:  # a vector: the result lacks the last dimension
        return site.only(0)
    axes = {len(site.output) - a + left} if left is not None else set()
    if right is not None:
        axes.add(len(site.output) - (b - (a == 1)) + right)  # a vector gives no row
    if len(axes) > 1 or (left == a - 2 and right is not None):
        raise CannotBatch("multiplies tensors that have the batch in different dimensions")
    (axis,) = axes
    if site.output[axis] != 1:
        raise CannotBatch("spreads an image over the dimension of the batch")
    return axis


def _recurrent(site: Site) -> Sequence[int]:
    """Run each image's sequence from the states, and to the length, of the one there is."""
    batch_first = bool(site.attributes.get("layout", 0))
    y, state = (0, 0) if batch_first else (2, 1)
    if site.only() != state:
        raise CannotBatch("takes the images of a batch for steps or features")
    for index, axis in {4: 0, 5: state, 6: state}.items():
        if index < len(site.inputs) and site.inputs[index] is not None:
            site.repeat(index, axis)
    return (y, state, state)


_ELEMENTWISE: Final = (
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip"),
    *("Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not"),
    *("Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh"),
    *("ThresholdedRelu", "Where", "Xor"),
)
_IMAGES: Final = (
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace"),
    *("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization"),
    *("InstanceNormalization", "LRN", "LpPool", "MaxPool", "SpaceToDepth"),
)
_REDUCTIONS: Final = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)

RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_IMAGES, _image),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_extreme),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantisation),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK"), _along(-1)),
    "Split": _along(0),
    "Col2Im": _image,
    "Concat": _concat,
    "CumSum": _cumulative,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "GridSample": _image_and_grid,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _last_two,
    "Unsqueeze": _unsqueeze,
}
"""By operator of opset 22 or newer; others may mix images."""
