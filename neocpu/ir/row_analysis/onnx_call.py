"""A node of an ONNX graph as an `OperatorCall`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt
import onnx

from neocpu.ir.row_analysis.independence import DependentRowsError, OperatorCall

_TO_THE_END: Final = 2**31 - 1
"""The least end of a Slice that takes everything, as exporters write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxCall(OperatorCall):
    """A node of a standard operator, opset 18 or newer."""

    op_type: str
    attributes: Mapping[str, Any]
    constant: Callable[[int], npt.NDArray[Any] | None]  # a constant input by its position

    def integers(self, name: str) -> list[int] | None:
        if name in ("sliced_axes", "padded_axes"):
            return self._sliced_axes() if name == "sliced_axes" else self._padded_axes()
        if name in self.attributes:
            return _listed(self.attributes[name])
        schema = onnx.defs.get_schema(self.op_type)
        if name in schema.attributes:
            default = schema.attributes[name].default_value
            return _listed(onnx.helper.get_attribute_value(default)) if default.name else None
        for index, parameter in enumerate(schema.inputs):
            if parameter.name == name:
                return self._constant_integers(index)
        return None

    def _constant_integers(self, index: int) -> list[int] | None:
        if index >= len(self.inputs) or self.inputs[index] is None:
            return None
        values = self.constant(index)
        if values is None:
            raise DependentRowsError(f"has an input {index} that is no constant")
        return [int(each) for each in values.reshape(-1)]

    def strings(self, name: str) -> list[str]:
        return [each.decode() for each in self.attributes.get(name, ())]

    def _sliced_axes(self) -> list[int]:
        starts, ends = self.integers("starts") or [], self.integers("ends") or []
        axes = self.integers("axes") or list(range(len(starts)))
        steps = self.integers("steps") or [1] * len(starts)
        return [
            axis
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
            if not (start == 0 and end >= _TO_THE_END and step == 1)
        ]

    def _padded_axes(self) -> list[int]:
        pads = self.integers("pads") or []
        axes = self.integers("axes") or list(range(self.rank()))
        pairs = zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)
        return [axis for axis, before, after in pairs if before or after]

    @property
    def images_first(self) -> bool:
        return True


def _listed(value: int | Sequence[int]) -> list[int]:
    return [int(value)] if isinstance(value, int) else [int(each) for each in value]
