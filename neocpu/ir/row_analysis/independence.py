"""The axes along which a call computes index by index, and the search among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]

PARAMETERS: Final = "has parameters that depend on the {rows}"
DIFFERENT_AXES: Final = "joins tensors that have the {rows} along different axes"


class DependentRowsError(Exception):
    """A call may compute a row from other rows.

    The message is the end of a sentence that begins with the operator. It is a template: a user
    replaces ``{rows}``, ``{row}`` and ``{axis}`` by its own nouns.
    """

    def described(self, *, rows: str, row: str, axis: str) -> str:
        return str(self).format(rows=rows, row=row, axis=axis)


@dataclass(frozen=True, slots=True)
class Way:
    """Axes of a call's inputs and results that run alongside each other."""

    inputs: Sequence[int | None]  # None, or no element, for an input that all indices share
    results: Sequence[int]  # one for each result, or one that is the same in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Independence:
    """The axes along which a call computes index by index."""

    ways: Sequence[Way]  # the alternatives; indices along each of them are independent
    why: str = "works across the {rows}"  # the error's message if rows lie along another axis
    broadcasts: bool = False  # whether all indices share an input of extent 1 along an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRows:
    """The axes that carry rows in one call; `required` has those of inputs, by position, that have
    to carry rows but are the same for all rows so far.
    """

    required: Mapping[int, int]
    results: Sequence[int]  # one for each result, or one that is the same in all

    def of_results(self, number: int) -> list[int]:
        return [*self.results] if len(self.results) > 1 else [*self.results] * number


def carry(
    inputs: Sequence[Shape | None], carried: Mapping[int, int], independence: Independence
) -> CarriedRows:
    """Return the axes of a call's results that carry rows.

    `inputs` has the shapes, None for an omitted input. `carried` has the axis of each input, by
    position, that carries rows; there is at least one. Raises DependentRowsError if the call may
    compute a row from other rows.
    """
    for way in independence.ways:
        axes = dict(enumerate(way.inputs))
        if any(axes.get(index) != axis for index, axis in carried.items()):
            continue
        required = {}
        for index, axis in axes.items():
            shape = inputs[index] if index < len(inputs) else None
            if axis is None or shape is None or index in carried:
                continue
            if not independence.broadcasts or shape[axis] != 1:
                required[index] = axis
        return CarriedRows(required=required, results=way.results)
    raise DependentRowsError(_reason(carried, independence))


def _reason(carried: Mapping[int, int], independence: Independence) -> str:
    possible: dict[int, set[int]] = {}
    for way in independence.ways:
        for index, axis in enumerate(way.inputs):
            if axis is not None:
                possible.setdefault(index, set()).add(axis)
    if possible and not carried.keys() <= possible.keys():
        return PARAMETERS
    if all(axis in possible.get(index, ()) for index, axis in carried.items()):
        return DIFFERENT_AXES
    return independence.why


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall(ABC):
    """A call of an operator."""

    inputs: tuple[Shape | None, ...]  # None for an omitted one
    result_rank: int | None = None  # that of the first result; None if it is not known yet

    @abstractmethod
    def integers(self, name: str) -> list[int] | None:
        """Return the integers of a parameter, or None without one.

        `name` is ONNX's name for it, ``sliced_axes`` for the axes that a slice does not take
        completely and in order, or ``padded_axes`` for the axes to which a pad adds indices.
        """

    @abstractmethod
    def strings(self, name: str) -> list[str]:
        """Return the strings of an attribute."""

    @property
    @abstractmethod
    def images_first(self) -> bool:
        """Whether the layout of a convolution or a pool begins with the axis of the images."""

    def flag(self, name: str) -> bool:
        return any(self.integers(name) or ())

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input; an empty one for an omitted input."""
        shape = self.inputs[index] if index < len(self.inputs) else None
        return () if shape is None else shape

    def rank(self, index: int = 0) -> int:
        return len(self.shape(index))
