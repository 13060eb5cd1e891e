"""The built-in networks, by the names their papers and torchvision give them.

A network is one builder function in a file of its family, and one entry in `MODELS`. Nothing is
imported before a network is built.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from neocpu.schedules.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import onnx

__all__ = ["MODELS", "ModelInfo", "build", "find", "is_name"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a network without building it.

    Attributes
    ----------
    name : str
        As the command line spells it; the builder function has the same name.
    module : str
        The module of the builder, below ``neocpu.models``.
    title : str
        For people.
    image : int
        Height and width of the input, in pixels.
    parameters : int
        Published number of trained parameters (batch-norm statistics are not trained).
    gmacs : float
        Published multiply-accumulates of one image, in units of 1e9.
    source : str
        Where the architecture was published.
    """

    name: str
    module: str
    title: str
    image: int
    parameters: int
    gmacs: float
    source: str


_ENTRIES: Final = (
    ModelInfo(
        "resnet50",
        "resnet",
        "ResNet-50 v1.5",
        224,
        25_557_032,
        4.09,
        "He et al., CVPR 2016; torchvision",
    ),
    ModelInfo(
        "densenet121",
        "densenet",
        "DenseNet-121",
        224,
        7_978_856,
        2.83,
        "Huang et al., CVPR 2017; torchvision",
    ),
)

MODELS: Final[Mapping[str, ModelInfo]] = MappingProxyType({info.name: info for info in _ENTRIES})
"""Every built-in network by name."""


def find(name: str) -> ModelInfo:
    """Return the entry of a built-in network.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        raise UsageError(f"no built-in network '{name}'; known: {', '.join(MODELS)}{hint}")
    return MODELS[name]


def is_name(model: str) -> bool:
    """Return whether ``model`` means a built-in network, known or not, rather than a file.

    That is a word without a suffix, unless there is a file of that name.
    """
    path = Path(model)
    return os.sep not in model and not path.suffix and not path.exists()


def build(name: str, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Build a network with random weights.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    batch : int
        Images per call.
    seed : int
        Of the weights. The same seed gives the same model.

    Returns
    -------
    onnx.ModelProto
        With static shapes: one input ``input`` of shape ``(batch, 3, image, image)``.

    Raises
    ------
    UsageError
        If the name is unknown, the batch not positive, or the seed negative.
    """
    info = find(name)
    if batch < 1:
        raise UsageError(f"batch must be at least 1, got {batch}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}")
    module = importlib.import_module(f"neocpu.models.{info.module}")
    model: onnx.ModelProto = getattr(module, info.name)((batch, 3, info.image, info.image), seed)
    return model
