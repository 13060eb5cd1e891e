"""A model that is compiled for whatever its inputs turn out to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx.backend.base import BackendRep

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.frontend.shapes.static_shapes import real_inputs
from neocpu.frontend.shapes.structural_inputs import structural_inputs
from neocpu.onnx_backend.narrow_numbers import as_bits, from_bits, hold_as_bits
from neocpu.onnx_backend.sequences import give_tensors, has_lists, put_together, take_apart
from neocpu.onnx_backend.specialise import AnyArray, empty_outputs, specialise, take_outputs
from neocpu.runtime.module import Module, load

_PLANS: Final = 16
"""Plans that a prepared model keeps; the one made first goes first."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The model compiled for some inputs.

    Attributes
    ----------
    module : Module or None
        None if all outputs are empty.
    empty : mapping of str to array
        The outputs without elements, which no module has.
    filled : tuple of str
        The outputs that it has.
    parts : mapping
        What of these each of the model's outputs is put together of.
    """

    module: Module | None
    empty: Mapping[str, AnyArray]
    filled: tuple[str, ...]
    parts: Mapping[str, Any]


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that runs on whatever shapes its inputs have.

    It is compiled when it first runs on some shapes. If it cannot be compiled as it is, the inputs
    that decide shapes (the target of a Reshape, the axes of a ReduceSum; `structural_inputs` has
    them all) are taken as constants, of the values that this run is given: a plan is made for each
    distinct value. An input without elements has but one value, and is always a constant.

    Parameters
    ----------
    model : onnx.ModelProto
    options : mapping
        What `neocpu.compile` is given besides.
    """

    def __init__(self, model: onnx.ModelProto, options: Mapping[str, Any]) -> None:
        held = hold_as_bits(model)
        self._model, self._narrow, self._options = held.model, held.outputs, dict(options)
        self._inputs = [value.name for value in real_inputs(model.graph)]
        self._fixes = False
        self._structural: dict[tuple[str, ...], frozenset[str]] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : list or tuple of arrays, or an array
            In graph order, each of the shape and element type that the model declares. A sequence
            is a list of arrays, and an optional value may be None.

        Returns
        -------
        tuple
            In graph order: arrays, and of outputs that are sequences or none lists and None.

        Raises
        ------
        UsageError
            If the number of inputs, or the shape or element type of one, is not the model's.
        NeoCPUError
            Whatever `neocpu.compile` raises of the model.
        """
        if kwargs:
            raise UsageError(f"run takes no option '{next(iter(kwargs))}'; give it to prepare")
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(self._inputs):
            names = ", ".join(self._inputs)
            raise UsageError(
                f"the model takes {len(self._inputs)} inputs ({names}), got {len(given)}"
            )
        model, arrays = take_apart(self._model, given)
        arrays = {name: as_bits(array) for name, array in arrays.items()}
        plan, constants = self._plan_for(model, arrays)
        found = dict(plan.empty)
        if plan.module is not None:
            taken = [array for name, array in arrays.items() if name not in constants]
            outputs = plan.module(taken)
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            found |= zip(plan.filled, several, strict=True)
        found = {name: from_bits(array, self._narrow.get(name)) for name, array in found.items()}
        return tuple(put_together(plan.parts, found))

    def _plan_for(
        self, model: onnx.ModelProto, arrays: Mapping[str, AnyArray]
    ) -> tuple[_Plan, frozenset[str]]:
        """Return a model compiled for such inputs, and which of them it took as constants."""
        empty = frozenset(name for name, array in arrays.items() if array.size == 0)
        if not self._fixes:
            try:
                return self._plan(model, arrays, empty), empty
            except NeoCPUError:
                if self._deciding(model, arrays) <= empty:
                    raise
        constants = self._deciding(model, arrays) | empty
        plan = self._plan(model, arrays, constants)
        self._fixes = True
        return plan, constants

    def _deciding(self, model: onnx.ModelProto, arrays: Mapping[str, AnyArray]) -> frozenset[str]:
        """Return the inputs that decide shapes: of other names, if sequences have other lengths."""
        names = tuple(arrays)
        if names not in self._structural:
            self._structural[names] = structural_inputs(model)
        return self._structural[names]

    def _plan(
        self, model: onnx.ModelProto, arrays: Mapping[str, AnyArray], constants: frozenset[str]
    ) -> _Plan:
        key = tuple(
            (name, array.shape, array.tobytes() if name in constants else b"")
            for name, array in arrays.items()
        )
        if key not in self._plans:
            plan = _make(model, arrays, constants, self._options)
            while len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return self._plans[key]


def _make(
    model: onnx.ModelProto,
    arrays: Mapping[str, AnyArray],
    constants: frozenset[str],
    options: Mapping[str, Any],
) -> _Plan:
    special = specialise(model, arrays, constants)
    parts: Mapping[str, Any] = {value.name: value.name for value in special.graph.output}
    if has_lists(special):
        special, parts = give_tensors(special)
    empty = empty_outputs(special)
    take_outputs(special, empty)
    filled = tuple(value.name for value in special.graph.output)
    if not filled:
        return _Plan(None, empty, filled, parts)
    with compile_model(special, **options) as compiled:
        return _Plan(load(compiled.path, options.get("threads")), empty, filled, parts)
