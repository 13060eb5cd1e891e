"""Check the arrays that a user passes for results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neocpu.foundation.bfloat16 import holds
from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.inputs import check_names, describe


def check_positional_out(specs: Sequence[TensorSpec], out: Any) -> list[AnyArray]:
    """Check one array, or a list or tuple of arrays in graph order.

    Raises UsageError: their number is not the model's, or results cannot be written to one.
    """
    sequence = list(out) if isinstance(out, list | tuple) else [out]
    if len(sequence) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(
            f"the model has {plural(len(specs), 'output')} ({names}), out= has "
            f"{plural(len(sequence), 'array')}: pass one for each, in this order"
        )
    return [check_output(spec, array) for spec, array in zip(specs, sequence, strict=True)]


def check_named_out(specs: Sequence[TensorSpec], out: Mapping[str, Any]) -> list[AnyArray]:
    """Check arrays given by output name, and return them in graph order.

    Raises UsageError: a name is unknown or missing, or results cannot be written to an array.
    Raises ArgumentTypeError: ``out`` is no mapping.
    """
    if not isinstance(out, Mapping):
        raise ArgumentTypeError("out= must be a mapping from the name of each output to an array")
    check_names(specs, out, "output", "out=: ")
    return [check_output(spec, out[spec.name]) for spec in specs]


def check_output(spec: TensorSpec, array: Any) -> AnyArray:
    """Return ``array`` if it can take an output; it may have any strides, alignment, byte order.

    Raises UsageError: its shape or dtype is not the output's, or it is read-only. Raises
    ArgumentTypeError: it is no numpy array.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"out= for '{spec.name}' must be a numpy array, got {type(array).__name__}: "
            "pass a view of it, as np.asarray(x) or np.from_dlpack(x) make"
        )
    if not holds(array.dtype, spec.dtype) or array.shape != spec.shape:
        bound = " (its largest)" if spec.bounded else ""
        raise UsageError(
            f"out= for '{spec.name}': expected {describe(spec.dtype, spec.shape)}{bound}, got "
            f"{describe(str(array.dtype), array.shape)}"
        )
    if not array.flags.writeable:
        raise UsageError(f"out= for '{spec.name}' is read-only: pass a writeable array")
    return array
