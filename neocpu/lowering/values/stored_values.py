"""The tensors of a model that a plan keeps, each with the variable that holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tvm import relax
from tvm.ir import Var

from neocpu.ir.expressions import Expr, static_shape
from neocpu.ir.model_names import channel_orders, is_numbered, renamed_by
from neocpu.plan.model_values import ModelValue
from neocpu.planning.quantised.grids import Grid
from neocpu.runtime.header_parts import Placement
from neocpu.schedules.vocabulary.format import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """A tensor of the model, and the variable that holds it.

    - `variable`: the variable's name, which no other variable has.
    - `shape`: the shape that the model gives it; the NCHW shape if it is a feature map in a format.
    - `form`: the format in which a feature map is stored; None if the tensor is stored as the model
      has it.
    - `error_factor`: the largest error of its kernel, as a multiple of that of direct summation in
      float32.
    - `order`: the model's channel at each position; empty if the channels are in the model's order.
    """

    name: str
    variable: str
    shape: tuple[int, ...]
    form: Format | None = None
    grid: Grid | None = None
    error_factor: float = 1.0
    order: tuple[int, ...] = ()

    def at(self, place: StoredPlace) -> ModelValue | None:
        """Return it as artifacts describe it; None if the place holds something else."""
        value = ModelValue(
            name=self.name,
            calls=place.calls,
            offset=place.placement.offset,
            dtype=place.placement.dtype,
            shape=self.shape,
            block=1 if self.form is None else self.form.layout.block,
            error_factor=self.error_factor,
            scale=0.0 if self.grid is None else self.grid.scale,
            zero=0 if self.grid is None else self.grid.zero,
            order=self.order,
        )
        of_its_type = self.form is None or self.form.dtype == value.dtype
        return value if of_its_type and value.end == place.placement.end else None


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """The place of a variable's tensor.

    `calls` is the number of the program's calls after which the tensor is there.
    """

    calls: int
    placement: Placement


def plain_value(var: Var, holder: Expr | None) -> StoredValue | None:
    """Return ``var`` as a value that ``holder`` stores as the model has it, or reshaped.

    None if ``var`` is no tensor, or if ``holder`` is no variable with as many elements.
    """
    shape = static_shape(var)
    if not isinstance(holder, Var) or shape is None:
        return None
    own = static_shape(holder)
    if own is None or math.prod(own) != math.prod(shape):
        return None
    return StoredValue(name=str(var.name), variable=str(holder.name), shape=shape)


def of_the_model(
    values: Iterable[StoredValue | None], main: relax.Function
) -> tuple[StoredValue, ...]:
    """Return the values that are tensors of the model, under the model's names.

    Values whose names TVM made are left out.
    """
    orders, renamed = channel_orders(main), renamed_by(main)
    return tuple(
        replace(value, name=renamed.get(value.name, value.name), order=orders.get(value.name, ()))
        for value in values
        if value is not None and not is_numbered(value.name)
    )


def placed(
    values: Iterable[StoredValue], places: Mapping[str, StoredPlace]
) -> tuple[ModelValue, ...]:
    """Return the values that have a place in the arena, in the order of their calls.

    `places` has those of variables, by name.
    """
    found = (each.at(places[each.variable]) for each in values if each.variable in places)
    return tuple(sorted(filter(None, found), key=lambda value: value.calls))
