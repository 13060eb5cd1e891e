"""The built-in networks, under the names of their papers and torchvision.

A network is one builder function in a file of its family, and one entry in `MODELS`. A family's
module is imported when one of its networks is built.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.frontend.models.catalogue import MODELS, SUITES, ModelInfo, find, is_name, suite
from neocpu.frontend.shapes.input_shapes import InputShapes

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MODELS",
    "SUITES",
    "ModelInfo",
    "build",
    "build_with_shapes",
    "find",
    "is_name",
    "suite",
]

CHANNELS: Final = 3


def build(
    name: str, batch: int = 1, seed: int = 0, image: tuple[int, int] | None = None
) -> onnx.ModelProto:
    """Build a network with random weights.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    batch : int
        Images per call.
    seed : int
        Seed of the weights. The same seed gives the same model.
    image : pair of int, optional
        Height and width; by default those of `ModelInfo`.

    Returns
    -------
    onnx.ModelProto
        A model with static shapes and one input ``input`` of shape ``(batch, 3, height, width)``.

    Raises
    ------
    UsageError
        The name is unknown, the batch is not positive, the seed is negative, or the image is too
        small or otherwise unsuitable for the network.
    """
    info = find(name)
    if batch < 1:
        raise UsageError(f"batch must be at least 1, got {batch}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}")
    height, width = image if image is not None else (info.image, info.image)
    if min(height, width) < 1:
        raise UsageError(f"an image of {height}x{width} pixels is empty")
    module = importlib.import_module(f"neocpu.frontend.models.{info.module}")
    try:
        model: onnx.ModelProto = getattr(module, name)((batch, CHANNELS, height, width), seed)
    except UsageError as error:
        raise UsageError(f"{name} of {height}x{width} pixels: {error}") from None
    return model


def build_with_shapes(name: str, shapes: InputShapes) -> onnx.ModelProto:
    """Build a network for the shape that ``--shape`` gives its input, or for its default shape.

    ``--batch`` sets the number of images.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    shapes : InputShapes
        The shape of ``input``, if there is one.

    Raises
    ------
    UsageError
        See `build`; or ``shapes`` is not of the form ``input:N,3,H,W``, or the batch is not N.
    """
    if not shapes.by_name and not shapes.values:
        return build(name, batch=1 if shapes.batch is None else shapes.batch)
    info = find(name)
    form = f"{name} takes input:N,3,H,W, by default input:1,3,{info.image},{info.image}"
    for given in (*shapes.by_name, *shapes.values):
        if given != "input" or given in shapes.values:
            hint = did_you_mean(given, ["input"])
            raise UsageError(f"--shape names an input '{given}', and {form}{hint}")
    shape = shapes.by_name["input"]
    if len(shape) != 4 or shape[1] != CHANNELS:
        raise UsageError(f"--shape input:{','.join(map(str, shape))} does not fit: {form}")
    shapes.require_batch("input")
    batch, _, height, width = shape
    return build(name, batch=batch, image=(height, width))
