"""A call of an operator, described in terms that ONNX and Relax share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from neocpu.ir.row_analysis.independence import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall(ABC):
    """A call of an operator.

    `inputs` are the shapes of the tensors that it reads; None for an omitted one. `result_rank` is
    the rank of the first result; None if it is not known yet.
    """

    inputs: tuple[Shape | None, ...]
    result_rank: int | None = None

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
