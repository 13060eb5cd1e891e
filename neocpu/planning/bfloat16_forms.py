"""Convolutions and dense layers of float32 as ones that read bfloat16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import NAME, array_dtype, round_to_bits
from neocpu.planning.quantised_steps import ConvForm
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def bfloat16_forms(
    workload: Conv2dWorkload, weights: NDArray[Any], operands: tuple[Any, ...]
) -> tuple[ConvForm, ...]:
    """Return the forms of a float32 convolution that read bfloat16, and write it or float32.

    None of depthwise ones: the instructions add up channels, and rounding what they read as well
    costs networks of them 3 dB.

    None where steps come before the products. Which of them a CPU computes its templates know.
    """
    if workload.numerics != FLOAT32 or workload.prologue or workload.is_depthwise:
        return ()
    kinds = [(NAME, rounded_weights(weights))]
    if workload.groups > 1:  # whose data may be widened first
        kinds.append(("float32", weights))
    return tuple(
        ConvForm(
            replace(workload, numerics=Numerics(NAME, kind, "float32", output)), packed, operands
        )
        for kind, packed in kinds
        for output in (NAME, "float32")
    )


def rounded_weights(weights: NDArray[Any]) -> NDArray[Any]:
    """Return float32 weights rounded to bfloat16, half to even."""
    return round_to_bits(weights).view(array_dtype(NAME))
