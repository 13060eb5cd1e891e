"""Candidate shapes of inputs with dynamic dimensions, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import onnx

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_SIZES: Final = (
    (224, 224),
    (256, 256),
    (320, 320),
    (640, 640),
    (512, 512),
    (416, 416),
    # Lines of text.
    (48, 320),
    (32, 320),
    (32, 128),
    (64, 256),
    # Small images.
    (112, 112),
    (96, 96),
    (64, 64),
    (32, 32),
    (28, 28),
)
"""Heights and widths; a third dimension has the extent of the first."""

_CHANNELS: Final = (3, 1)

_UNKNOWN_RANK: Final = (("N", "C", "H", "W"), ("N", "H", "W", 3), ("N", "H", "W"), ("N", "H"))
"""Possible shapes of an input without a declared one."""

_NAMELESS: Final = ("", "?")
"""Names of dimensions that have nothing to do with each other."""


def candidate_shapes(
    inputs: Sequence[onnx.ValueInfoProto], batch: int | None = None
) -> Iterator[Shapes]:
    """Yield shapes of inputs, by name; dimensions of the same name have the same extent.

    The batch is the extent of a dynamic first dimension, 1 by default.
    """
    unknown = any(not value.type.tensor_type.HasField("shape") for value in inputs)
    seen: list[Shapes] = []
    for rank in _UNKNOWN_RANK if unknown else _UNKNOWN_RANK[:1]:
        for size in _SIZES:
            for channels in _CHANNELS:
                known: dict[object, int] = {}
                shapes = {
                    value.name: _shape(value, rank, size, channels, batch or 1, known)
                    for value in inputs
                }
                if shapes not in seen:
                    seen.append(shapes)
                    yield shapes


def _shape(
    value: onnx.ValueInfoProto,
    unknown: Sequence[str | int],
    size: tuple[int, int],
    channels: int,
    batch: int,
    known: dict[object, int],
) -> tuple[int, ...]:
    """Return the shape of an input; ``known`` has the extents of names, and new ones are added."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        letters = {"N": batch, "C": channels, "H": size[0], "W": size[1]}
        return tuple(each if isinstance(each, int) else letters[each] for each in unknown)
    dims = tensor.shape.dim
    channel_axis = None
    if len(dims) >= 4:  # an image; if channels are last, their number is fixed
        last = 0 < dims[-1].dim_value <= 4 and dims[1].dim_value < 1
        channel_axis = len(dims) - 1 if last else 1
    extents: list[int] = []
    sizes = 0
    for axis, dim in enumerate(dims):
        extent = channels if axis == channel_axis else size[sizes % 2]
        if axis == 0:
            extent = batch
        elif axis != channel_axis:
            sizes += 1
        key: object = (value.name, axis) if dim.dim_param in _NAMELESS else dim.dim_param
        extents.append(dim.dim_value if dim.dim_value > 0 else known.setdefault(key, extent))
    return tuple(extents)


def option(name: str, shape: Sequence[int]) -> str:
    """Return the option that gives an input a shape on the command line."""
    return f"--shape {name}:{','.join(map(str, shape))}"
