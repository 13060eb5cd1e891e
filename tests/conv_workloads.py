"""Workloads written in one line."""

from dataclasses import replace
from typing import Any

from neocpu.schedules.operators.pool_workload import PoolWorkload
from neocpu.schedules.operators.ranking.non_max_suppression import NonMaxSuppressionWorkload
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp


def conv_workload(
    batch: int,
    in_channels: int,
    height: int,
    width: int,
    out_channels: int,
    kernel: tuple[int, int],
    **more: Any,
) -> Conv2dWorkload:
    """Return a convolution of NCHW data with OIHW weights; ``more`` are its other fields."""
    return Conv2dWorkload(
        batch=batch,
        in_channels=in_channels,
        height=height,
        width=width,
        out_channels=out_channels,
        kernel=kernel,
        **more,
    )


def pool_workload(
    kind: str, shape: tuple[int, int, int, int], kernel: tuple[int, int], **more: Any
) -> PoolWorkload:
    """Return a pooling of NCHW data of a shape."""
    batch, channels, height, width = shape
    size = {"batch": batch, "channels": channels, "height": height, "width": width}
    return PoolWorkload(kind=kind, kernel=kernel, **size, **more)


def suppression(
    batch: int, classes: int, boxes: int, most: int, iou: float = 0.5, **more: Any
) -> NonMaxSuppressionWorkload:
    """Return a NonMaxSuppression of at most ``most`` boxes of each image and class."""
    return NonMaxSuppressionWorkload(
        batch=batch, classes=classes, boxes=boxes, max_output=most, iou_threshold=iou, **more
    )


def join(operator: str, channels: tuple[int, ...], size: tuple[int, int, int], block: int = 8):
    """Return a sum or a concatenation of feature maps of N, H and W."""
    batch, height, width = size
    extents = {"batch": batch, "height": height, "width": width}
    return JoinWorkload(operator=operator, channels=channels, block=block, **extents)


def typed(
    nest: Conv2dWorkload, numerics: Numerics, epilogue: tuple[EpilogueOp, ...] = ()
) -> Conv2dWorkload:
    """Return a convolution with the loops of ``nest``."""
    return replace(nest, numerics=numerics, epilogue=epilogue)


PAD = (1, 1, 1, 1)
# Loops of awkward sizes, of which tests make workloads by `typed`.
PIXELS = conv_workload(1, 67, 7, 7, 59, (1, 1))
WHOLE_PIXELS = conv_workload(1, 64, 9, 5, 64, (1, 1))
STRIDED_PIXELS = conv_workload(2, 41, 5, 9, 37, (1, 1), stride=(2, 2))
ONE_PIXEL = conv_workload(1, 130, 1, 1, 31, (1, 1))
WINDOW = conv_workload(1, 40, 7, 6, 33, (3, 3), padding=PAD)
FEW_CHANNELS = conv_workload(1, 17, 9, 11, 20, (3, 3), padding=PAD)
DILATED = conv_workload(
    2, 3, 17, 13, 20, (5, 3), stride=(2, 1), padding=(2, 0, 1, 3), dilation=(1, 2)
)
WIDE_STRIDES = conv_workload(3, 5, 6, 7, 7, (2, 2), stride=(3, 3), padding=(0, 1, 1, 0))
CUBIC = conv_workload(16, 16, 16, 16, 16, (3, 3), padding=PAD)
SMALL_CUBIC = conv_workload(8, 8, 8, 8, 8, (3, 3), padding=PAD)
TWO_IMAGES = conv_workload(2, 67, 9, 5, 64, (3, 3), padding=PAD)
UNEVEN_PADDING = conv_workload(3, 41, 5, 13, 37, (3, 3), padding=(2, 0, 1, 3))
TINY = conv_workload(1, 16, 1, 1, 16, (3, 3), padding=PAD)
FAR_TAPS = conv_workload(1, 32, 9, 10, 32, (3, 3), padding=(2, 3, 2, 3), dilation=(2, 3))
PICTURE = conv_workload(1, 3, 31, 29, 64, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3))
