"""The numbers in which a model may be computed."""

from __future__ import annotations

from enum import StrEnum

from neocpu.foundation.errors import UsageError, did_you_mean


class Precision(StrEnum):
    """The numbers that the search may choose from. Only quantised layers may use integers.

    Attributes
    ----------
    FP32
        Computation in float32 alone. Integers only store weights and feature maps, as in the model.
    INT8
        The same as ``auto`` for a model with quantised layers. Calibration first quantises all
        layers that can be.
    BF16
        bfloat16 in convolutions, dense layers and attention, where that is faster.
    AUTO
        The faster numbers for each operator, but never bfloat16, which is less exact than the
        model asks for.
    """

    FP32 = "fp32"
    INT8 = "int8"
    BF16 = "bf16"
    AUTO = "auto"


def parse_precision(text: str) -> Precision:
    """Return the precision of that name. Raises UsageError if there is none."""
    try:
        return Precision(text)
    except ValueError:
        known = [str(each) for each in Precision]
        raise UsageError(
            f"unknown precision {text!r}; known: {', '.join(known)}{did_you_mean(text, known)}"
        ) from None
