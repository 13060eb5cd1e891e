"""A call of a Relax operator as an `OperatorCall`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm.ir import Call, DictAttrs

from neocpu.ir.expressions import integers_of
from neocpu.ir.row_analysis.independence import OperatorCall

_NAMES: Final[Mapping[str, str]] = {"axes": "axis", "perm": "axes"}
"""Relax's names of parameters, by ONNX's, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxCall(OperatorCall):
    """A call of an operator of Relax, or of the planner. Its `inputs` are the tensors that it
    reads, those of tuples one by one.
    """

    call: Call

    def _attribute(self, name: str) -> Any:
        attrs = self.call.attrs
        if isinstance(attrs, DictAttrs):
            return attrs[name] if name in attrs else None
        return getattr(attrs, name, getattr(attrs, _NAMES.get(name, name), None))

    def integers(self, name: str) -> list[int] | None:
        if name in ("sliced_axes", "padded_axes"):
            return self._sliced_axes() if name == "sliced_axes" else self._padded_axes()
        value = self._attribute(name)
        if value is None:
            return None
        return [int(value)] if isinstance(value, int) else integers_of(value)

    def strings(self, name: str) -> list[str]:
        return [str(each) for each in self._attribute(name) or ()]

    def _sliced_axes(self) -> list[int]:
        return [axis for axis, *_ in sliced_ranges(self.call, self.shape())]

    def _padded_axes(self) -> list[int]:
        widths = integers_of(self.call.attrs.pad_width)
        return [axis for axis in range(self.rank()) if any(widths[2 * axis : 2 * axis + 2])]

    @property
    def images_first(self) -> bool:
        layout = self._attribute("data_layout") or self._attribute("layout")
        return str(layout).startswith("N")


def sliced_ranges(call: Call, extents: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return the axes that a slice does not take completely, with their begins, ends and steps."""
    axes, begins, ends = (_numbers(argument) for argument in call.args[1:4])
    steps = _numbers(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    found = []
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        extent = extents[axis % len(extents)]
        if not (begin in (0, -extent) and end >= extent and step == 1):
            found.append((axis % len(extents), begin, end, step))
    return sorted(found)


def _numbers(argument: Any) -> list[int]:
    return [int(field.value) for field in argument.fields]
