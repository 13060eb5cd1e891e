"""Forms of float32 convolutions and dense layers that read bfloat16."""

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

    The instructions on bfloat16 add up channels, which depthwise convolutions do not. These keep
    their float32 weights: their data are widened, and half as many bytes move.

    There is no form if the convolution has a prologue, or has groups and works on volumes. The
    templates know which forms a CPU computes. The weights are those of float32: see
    `registry.given_weights`.
    """
    volumes_in_groups = workload.groups > 1 and workload.frames is not None
    if workload.numerics != FLOAT32 or workload.prologue or volumes_in_groups:
        return ()
    kinds = [] if workload.is_depthwise else [NAME]
    kinds += ["float32"] * (workload.groups > 1)  # with data that are widened first
    return tuple(
        ConvForm(
            replace(
                workload, numerics=Numerics(data=NAME, weights=kind, sum="float32", output=output)
            ),
            weights,
            operands,
        )
        for kind in kinds
        for output in (NAME, "float32")
    )
