"""The tensors of a model that a plan keeps, each by the variable that holds it."""

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


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A tensor of the model, and the variable that holds it.

    Attributes
    ----------
    name : str
        As the model calls it.
    held : str
        The variable's name, which no other one has.
    shape : tuple of int
        As the model has it; of feature maps in a format, NCHW.
    form : Format or None
        How a feature map is held; None of what is as the model has it.
    grid : Grid or None
        What integers stand for.
    error_factor : float
        What its kernel errs at most, as a multiple of direct summation in float32.
    order : tuple of int
        The model's channel that each place has; empty where they are in order.
    """

    name: str
    held: str
    shape: tuple[int, ...]
    form: Format | None = None
    grid: Grid | None = None
    error_factor: float = 1.0
    order: tuple[int, ...] = ()

    def at(self, place: HeldPlace) -> ModelValue | None:
        """Return it as artifacts tell of it; None if what lies there is something else."""
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
class HeldPlace:
    """Where what a variable holds lies, and once how many of the program's calls were made."""

    calls: int
    placement: Placement


def plain_value(var: Var, held: Expr | None) -> HeldValue | None:
    """Return the tensor ``var`` that is held as the model has it, or seen in another shape.

    None if it is no tensor, or not held.
    """
    shape = static_shape(var)
    if not isinstance(held, Var) or shape is None:
        return None
    own = static_shape(held)
    if own is None or math.prod(own) != math.prod(shape):
        return None
    return HeldValue(str(var.name), str(held.name), shape)


def of_the_model(values: Iterable[HeldValue | None], main: relax.Function) -> tuple[HeldValue, ...]:
    """Return those values that are the model's, as it calls them: names of our own are none."""
    orders, renamed = channel_orders(main), renamed_by(main)
    return tuple(
        replace(value, name=renamed.get(value.name, value.name), order=orders.get(value.name, ()))
        for value in values
        if value is not None and not is_numbered(value.name)
    )


def placed(values: Iterable[HeldValue], places: Mapping[str, HeldPlace]) -> tuple[ModelValue, ...]:
    """Return those values that are somewhere in the arena.

    Parameters
    ----------
    places : mapping of str to HeldPlace
        Of what variables hold, by their names.
    """
    found = (each.at(places[each.held]) for each in values if each.held in places)
    return tuple(sorted(filter(None, found), key=lambda value: value.calls))
