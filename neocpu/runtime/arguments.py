"""Check the inputs, and the arrays for results, that a user passes; say how to mend them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from neocpu.foundation.bfloat16 import NAME, holds
from neocpu.foundation.errors import ArgumentTypeError, UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.shape_ranges import shape_hint
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature, describe

_HOST_DEVICES: Final = (1, 3, 11)
"""DLPack's devices with memory that the CPU reads: its own, and pinned for CUDA and ROCm."""

_SHOWN: Final = 8
"""The most inputs that a message lists."""


def check_positional(
    signatures: SignatureSet, values: Sequence[Any]
) -> tuple[Signature, list[AnyArray]]:
    """Check the arrays of a call: one for each input, or a single list or tuple of them.

    The signature returned may be a batch without a plan. Raises UsageError.
    """
    specs = signatures.all[0].inputs
    one = values[0] if len(values) == 1 else None
    arrays = one if isinstance(one, list | tuple) else values
    if len(arrays) != len(specs):
        hint = "; results are written into the arrays of out=" if len(values) > len(specs) else ""
        raise UsageError(
            f"the model takes {plural(len(specs), 'input')}, got {len(arrays)}: "
            f"call {call_text(signatures)}{hint}"
        )
    return _checked(signatures, arrays)


def call_text(signatures: SignatureSet) -> str:
    """Return a call of a model, for messages."""
    specs, described = signatures.all[0].inputs, signatures.described()
    names = [re.sub(r"\W", "_", spec.name) for spec in specs]
    kinds = [f"{name} is {text}" for name, text in zip(names, described, strict=True)]
    more = f" and {len(specs) - _SHOWN} more" if len(specs) > _SHOWN else ""
    dots = ", ..." if more else ""
    return f"m({', '.join(names[:_SHOWN])}{dots}), where {', '.join(kinds[:_SHOWN])}{more}"


def check_named(
    signatures: SignatureSet, values: Mapping[str, Any]
) -> tuple[Signature, list[AnyArray]]:
    """Check arrays given by input name, and return them in graph order, as `check_positional`."""
    specs = signatures.all[0].inputs
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(
            "inputs by name must be a mapping from the name of each to an array, got "
            f"{type(values).__name__}: call {call_text(signatures)}"
        )
    check_names(specs, values, "input")
    return _checked(signatures, [values[spec.name] for spec in specs])


def _checked(signatures: SignatureSet, values: Sequence[Any]) -> tuple[Signature, list[AnyArray]]:
    specs = signatures.all[0].inputs
    if len(signatures.all) == 1 and signatures.sized is None:
        return signatures.all[0], [
            check_input(spec, value) for spec, value in zip(specs, values, strict=True)
        ]
    arrays = [_as_array(spec, value) for spec, value in zip(specs, values, strict=True)]
    for place, (spec, array) in enumerate(zip(specs, arrays, strict=True)):
        if not holds(array.dtype, spec.dtype):
            _refuse_dtype(spec, array.dtype, signatures.described()[place])
    return signatures.of(arrays), arrays


def check_names(
    specs: Sequence[TensorSpec], values: Mapping[str, Any], kind: str, where: str = ""
) -> None:
    """Check that ``values`` has a value for each specification, and no other."""
    names = [spec.name for spec in specs]
    for name in values:
        if name not in names:
            raise UsageError(
                f"{where}the model has no {kind} '{name}', only {', '.join(names)}"
                f"{did_you_mean(str(name), names)}"
            )
    if missing := [name for name in names if name not in values]:
        raise UsageError(f"{where}missing {kind} {', '.join(missing)}")


def check_input(spec: TensorSpec, value: Any) -> AnyArray:
    """Return ``value`` as an array of the input's shape and dtype, in any strides and byte order.

    Nothing is cast: a wrong dtype is more often a forgotten normalisation than intended. Arrays of
    other libraries (DLPack) and buffers are not copied. Raises ArgumentTypeError: it is none.
    """
    array = _as_array(spec, value)
    check_kind(spec, array.dtype, array.shape)
    return array


def check_kind(spec: TensorSpec, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Check the dtype (in any byte order; uint16 does for bfloat16) and the shape of an array."""
    if not holds(dtype, spec.dtype):
        _refuse_dtype(spec, dtype, describe(spec.dtype, spec.shape))
    if shape != spec.shape:
        raise UsageError(
            f"input '{spec.name}': expected {describe(spec.dtype, spec.shape)}, got "
            f"{describe(spec.dtype, shape)}{shape_hint(spec.shape, shape)}"
        )


def _refuse_dtype(spec: TensorSpec, dtype: np.dtype[Any], expected: str) -> NoReturn:
    if dtype.kind in "OSU":  # None, text or objects: no conversion makes numbers of them
        raise UsageError(
            f"input '{spec.name}': expected {expected}, got what is no array of numbers (dtype "
            f"{dtype})"
        )
    wanted = "ml_dtypes.bfloat16" if spec.dtype == NAME else repr(spec.dtype)
    raise UsageError(
        f"input '{spec.name}': expected {expected}, got dtype {dtype}: convert it with "
        f"x.astype({wanted})"
    )


def _as_array(spec: TensorSpec, value: Any) -> AnyArray:
    """Return an object as a numpy array, without a copy if it exports DLPack or a buffer."""
    if isinstance(value, np.ndarray):
        return value
    try:
        if not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        kind, _ = value.__dlpack_device__()
        if kind in _HOST_DEVICES:
            return np.from_dlpack(value)
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentTypeError(f"input '{spec.name}' is not an array: {reason}") from error
    raise UsageError(
        f"input '{spec.name}' does not lie in the CPU's memory (DLPack device type {int(kind)}): "
        "copy it there first, as with x.cpu()"
    )


def check_positional_out(specs: Sequence[TensorSpec], out: Any) -> list[AnyArray]:
    """Check one array, or a list or tuple of arrays in graph order."""
    sequence = list(out) if isinstance(out, list | tuple) else [out]
    if len(sequence) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(
            f"the model has {plural(len(specs), 'output')} ({names}), out= has "
            f"{plural(len(sequence), 'array')}: pass one for each, in this order"
        )
    return [check_output(spec, array) for spec, array in zip(specs, sequence, strict=True)]


def check_named_out(specs: Sequence[TensorSpec], out: Mapping[str, Any]) -> list[AnyArray]:
    """Check arrays given by output name, and return them in graph order."""
    if not isinstance(out, Mapping):
        raise ArgumentTypeError("out= must be a mapping from the name of each output to an array")
    check_names(specs, out, "output", "out=: ")
    return [check_output(spec, out[spec.name]) for spec in specs]


def check_output(spec: TensorSpec, array: Any) -> AnyArray:
    """Return ``array`` if it can take an output; it may have any strides, alignment, byte order."""
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
