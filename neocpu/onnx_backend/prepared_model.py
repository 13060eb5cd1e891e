"""A model that is compiled when it runs, for the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx.backend.base import BackendRep

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.frontend.shapes.static_shapes import real_inputs
from neocpu.frontend.shapes.structural_inputs import structural_inputs
from neocpu.onnx_backend.specialise import AnyArray, empty_outputs, specialise, take_outputs
from neocpu.runtime.module import Module, load

_PLANS: Final = 16
"""Plans that a prepared model keeps; the oldest one is dropped first."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The model compiled for some inputs.

    Attributes
    ----------
    module : Module or None
        The compiled model; None if all outputs are empty.
    empty : mapping of str to array
        The outputs without elements, which no module can have.
    filled : tuple of str
        The outputs of the module.
    outputs : tuple of str
        All outputs, in graph order.
    """

    module: Module | None
    empty: Mapping[str, AnyArray]
    filled: tuple[str, ...]
    outputs: tuple[str, ...]


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that runs on inputs of any shapes.

    It is compiled when it first runs on inputs of some shapes. If it cannot be compiled as it is,
    the inputs that decide shapes become constants with their values in that run, and a plan is made
    for each distinct value. Such inputs are the target of a Reshape or the axes of a ReduceSum;
    `structural_inputs` finds them all. An input without elements has only one value, and is always
    a constant.

    Parameters
    ----------
    model : onnx.ModelProto
    options : mapping
        The options for `neocpu.compile`.
    """

    def __init__(self, model: onnx.ModelProto, options: Mapping[str, Any]) -> None:
        self._model, self._options = model, dict(options)
        self._inputs = [value.name for value in real_inputs(model.graph)]
        self._fixes = False
        self._structural: frozenset[str] | None = None
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : list or tuple of arrays, or an array
            The inputs in graph order, each of the shape and element type that the model declares.

        Returns
        -------
        tuple of array
            The outputs in graph order.

        Raises
        ------
        UsageError
            The number of inputs, or the shape or element type of one, is not the model's.
        NeoCPUError
            `neocpu.compile` refuses the model.
        """
        if kwargs:
            raise UsageError(f"run takes no option '{next(iter(kwargs))}'; give it to prepare")
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(self._inputs):
            names = ", ".join(self._inputs)
            raise UsageError(
                f"the model takes {len(self._inputs)} inputs ({names}), got {len(given)}"
            )
        arrays = dict(zip(self._inputs, map(_array, self._inputs, given), strict=True))
        plan, constants = self._plan_for(arrays)
        found = dict(plan.empty)
        if plan.module is not None:
            taken = [array for name, array in arrays.items() if name not in constants]
            outputs = plan.module(taken)
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            found |= zip(plan.filled, several, strict=True)
        return tuple(found[name] for name in plan.outputs)

    def _plan_for(self, arrays: Mapping[str, AnyArray]) -> tuple[_Plan, frozenset[str]]:
        """Return the model compiled for such inputs, and the inputs that became constants."""
        empty = frozenset(name for name, array in arrays.items() if array.size == 0)
        if not self._fixes:
            try:
                return self._plan(arrays, empty), empty
            except NeoCPUError:
                if self._deciding() <= empty:
                    raise
        constants = self._deciding() | empty
        plan = self._plan(arrays, constants)
        self._fixes = True
        return plan, constants

    def _deciding(self) -> frozenset[str]:
        """Return the inputs that decide shapes."""
        if self._structural is None:
            self._structural = structural_inputs(self._model)
        return self._structural

    def _plan(self, arrays: Mapping[str, AnyArray], constants: frozenset[str]) -> _Plan:
        key = tuple(
            (name, array.shape, array.tobytes() if name in constants else b"")
            for name, array in arrays.items()
        )
        if key not in self._plans:
            plan = _make(self._model, arrays, constants, self._options)
            while len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return self._plans[key]


def _array(name: str, value: Any) -> AnyArray:
    if value is None or isinstance(value, list | tuple):
        raise UsageError(f"input '{name}' must be an array, got {type(value).__name__}")
    return np.asarray(value)


def _make(
    model: onnx.ModelProto,
    arrays: Mapping[str, AnyArray],
    constants: frozenset[str],
    options: Mapping[str, Any],
) -> _Plan:
    special = specialise(model, arrays, constants)
    outputs = tuple(value.name for value in special.graph.output)
    empty = empty_outputs(special)
    take_outputs(special, empty)
    filled = tuple(value.name for value in special.graph.output)
    if not filled:
        return _Plan(None, empty, filled, outputs)
    with compile_model(special, **options) as compiled:
        return _Plan(load(compiled.path, options.get("threads")), empty, filled, outputs)
