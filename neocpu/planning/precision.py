"""In what numbers a model may be computed."""

from __future__ import annotations

from enum import StrEnum

from neocpu.foundation.errors import UsageError, did_you_mean


class Precision(StrEnum):
    """What the search may choose from: integers for what a quantised model allows them for.

    Attributes
    ----------
    FP32
        Float32 alone: integers are only what weights and feature maps are stored as in the model.
    INT8
        As ``auto``, of models whose layers are quantised; by calibration, all that can be.
    BF16
        bfloat16 in convolutions, dense layers and attention, where that is faster.
    AUTO
        What is faster in the network, operator by operator; never bfloat16, which is less exact
        than the model says.
    """

    FP32 = "fp32"
    INT8 = "int8"
    BF16 = "bf16"
    AUTO = "auto"


def parse_precision(text: str) -> Precision:
    """Return the precision of that name.

    Raises
    ------
    UsageError
        If there is none.
    """
    try:
        return Precision(text)
    except ValueError:
        known = [str(each) for each in Precision]
        raise UsageError(
            f"unknown precision {text!r}; known: {', '.join(known)}{did_you_mean(text, known)}"
        ) from None
