"""Convolutions and dense layers of float32 as ones that read bfloat16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import NAME
from neocpu.planning.quantised.quantised_steps import ConvForm
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def bfloat16_forms(
    workload: Conv2dWorkload, weights: NDArray[Any], operands: tuple[Any, ...]
) -> tuple[ConvForm, ...]:
    """Return the forms of a float32 convolution that read bfloat16, and write it or float32.

    None of depthwise ones: the instructions add up channels, and rounding what they read as well
    costs networks of them 3 dB.

    None where steps come before the products, and of volumes in groups. Which of them a CPU
    computes its templates know. Weights are those of float32: see `registry.given_weights`.
    """
    in_groups = workload.is_depthwise or (workload.groups > 1 and workload.frames is not None)
    others = workload.prologue or in_groups
    if workload.numerics != FLOAT32 or others:
        return ()
    kinds = (NAME,) if workload.groups == 1 else (NAME, "float32")  # of data that are widened first
    return tuple(
        ConvForm(
            replace(workload, numerics=Numerics(NAME, kind, "float32", output)), weights, operands
        )
        for kind in kinds
        for output in (NAME, "float32")
    )
