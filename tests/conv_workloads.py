"""Convolution workloads written in one line."""

from typing import Any

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
