"""ONNX's standard interface to backends, `onnx.backend.base`, implemented by neocpu.

    import neocpu.onnx_backend as backend

    prepared = backend.prepare(onnx.load("net.onnx"))
    (y,) = prepared.run([x])

A compiled model has one shape. If a model's shapes depend on its inputs, `PreparedModel` makes a
plan for each distinct shape of the inputs, and for each distinct value of those that decide shapes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.shapes.static_shapes import fix_inputs, real_inputs
from neocpu.frontend.shapes.structural_inputs import structural_inputs
from neocpu.frontend.source import read_model
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.module import Module, load


def specialise(
    model: onnx.ModelProto, arrays: Mapping[str, AnyArray], constants: Collection[str]
) -> onnx.ModelProto:
    """Return the model with the static shapes of ``arrays``, and some inputs as constants."""
    special = onnx.ModelProto()
    special.CopyFrom(model)
    fix_inputs(special.graph, {name: arrays[name] for name in arrays if name in constants})
    for value in special.graph.input:
        if value.name in arrays:
            _set_open(value, arrays[value.name].shape)
    return special


def empty_outputs(model: onnx.ModelProto) -> dict[str, AnyArray]:
    """Return the outputs without elements, as far as shape inference finds them."""
    light = strip_weights(model).model
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, IndexError):
        return {}  # the compiler reports what is wrong
    found = {}
    for value in inferred.graph.output:
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        shape = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
        if tensor.HasField("shape") and len(shape) == len(dims) and math.prod(shape) == 0:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            found[value.name] = np.empty(shape, dtype)
    return found


def _set_open(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    """Set an input's dynamic dimensions to the extents of an array; others stay as declared."""
    if not value.type.HasField("tensor_type"):
        return
    dims = value.type.tensor_type.shape.dim
    if not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.SetInParent()
        for extent in shape:
            dims.add().dim_value = extent
    for dim, extent in zip(dims, shape, strict=False):
        if dim.dim_value <= 0:
            dim.dim_value = extent


_PLANS: Final = 16
"""Plans that a prepared model keeps; the oldest one is dropped first."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The model compiled for some inputs."""

    module: Module | None  # None if no output has elements
    empty: Mapping[str, AnyArray]  # outputs without elements, which no module can have
    filled: tuple[str, ...]  # the others, which the module makes
    outputs: tuple[str, ...]  # all, in graph order


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that runs on inputs of any shapes.

    It is compiled when it first runs on inputs of some shapes. If it cannot be compiled as it is,
    the inputs that decide shapes (`structural_inputs`), such as the target of a Reshape, become
    constants, and a plan is made for each distinct value. Inputs without elements always do.
    """

    def __init__(self, model: onnx.ModelProto, options: Mapping[str, Any]) -> None:
        self._model, self._options = model, dict(options)
        self._inputs = [value.name for value in real_inputs(model.graph)]
        self._fixes = False
        self._structural: frozenset[str] | None = None
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model on an array or several, and return its outputs, both in graph order.

        Raises UsageError: the number of inputs, or the shape or element type of one, is not the
        model's; NeoCPUError: `neocpu.compile` refuses the model.
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
    kept = [value for value in special.graph.output if value.name not in empty]
    del special.graph.output[:]
    special.graph.output.extend(kept)
    filled = tuple(value.name for value in special.graph.output)
    if not filled:
        return _Plan(None, empty, filled, outputs)
    with compile_model(special, **options) as compiled:
        return _Plan(load(compiled.path, options.get("threads")), empty, filled, outputs)


class NeoCPUBackend(Backend):  # type: ignore[misc]
    """neocpu as a backend of ONNX; `prepare` takes the options of `neocpu.compile`."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Return a model (ModelProto, path or bytes), to be compiled for its first run's inputs.

        ``kwargs`` are options of `neocpu.compile`, such as ``threads``. Raises UsageError: the
        device is not a CPU; ModelError: the model cannot be read.
        """
        if not cls.supports_device(device):
            raise UsageError(f"neocpu runs on 'CPU', not on '{device}'")
        return PreparedModel(read_model(model), kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator: see `onnx.backend.base.Backend.run_node`.

        ``opset_version`` is by default the newest that onnx knows; other options are those of
        `neocpu.compile`. ``outputs_info`` is ignored. Raises UsageError: the number of inputs is
        not the node's; NeoCPUError: `neocpu.compile` refuses the node.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        given = [np.asarray(array) for array in inputs]
        if len(given) != len(names):
            raise UsageError(f"the node takes {len(names)} inputs, got {len(given)}")
        arrays = dict(zip(names, given, strict=True))
        values = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
        ]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], node.op_type, values, results)
        domain = onnx.helper.make_opsetid(node.domain, version)
        model = onnx.helper.make_model(graph, opset_imports=[domain])
        fixed: dict[str, AnyArray] = {n: arrays.pop(n) for n in structural_inputs(model)}
        fix_inputs(model.graph, fixed)
        model = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        return cls.prepare(model, device, **kwargs).run(list(arrays.values()))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device is the CPU; ONNX knows only one."""
        return device in ("CPU", "CPU:0")


is_compatible = NeoCPUBackend.is_compatible
prepare = NeoCPUBackend.prepare
run_model = NeoCPUBackend.run_model
run_node = NeoCPUBackend.run_node
supports_device = NeoCPUBackend.supports_device
