"""Workloads written in one line."""

from typing import Any

from neocpu.schedules.operators.pool_workload import PoolWorkload
from neocpu.schedules.operators.ranking.non_max_suppression import NonMaxSuppressionWorkload
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


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
