"""The built-in networks and suites of them; nothing here builds one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean

__all__ = ["MODELS", "SUITES", "ModelInfo", "find", "is_name", "suite"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a network without building it.

    Attributes
    ----------
    name : str
        As the command line spells it; the builder function has the same name.
    module : str
        The module of the builder, below ``neocpu.frontend.models``.
    title : str
        For people.
    image : int
        Height and width of the usual input, in pixels.
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


_HE: Final = "He et al., CVPR 2016; torchvision"
_SIMONYAN: Final = "Simonyan and Zisserman, ICLR 2015; torchvision"
_HUANG: Final = "Huang et al., CVPR 2017; torchvision"
_HOWARD_2017: Final = "Howard et al., 2017"
_SANDLER: Final = "Sandler et al., CVPR 2018; torchvision"
_HOWARD_2019: Final = "Howard et al., ICCV 2019; torchvision"
_TAN: Final = "Tan and Le, ICML 2019; torchvision"
_IANDOLA: Final = "Iandola et al., 2016; torchvision"
_MA: Final = "Ma et al., ECCV 2018; torchvision"
_XIE: Final = "Xie et al., CVPR 2017; torchvision"
_SZEGEDY: Final = "Szegedy et al., CVPR 2016; torchvision"
_LIU: Final = "Liu et al., ECCV 2016; GluonCV"
_RONNEBERGER: Final = "Ronneberger et al., MICCAI 2015; milesial/Pytorch-UNet"
_REDMON: Final = "Redmon and Farhadi, 2018; Darknet"

# Parameters and multiply-accumulates of torchvision's networks are those of its documentation.
# Nobody published those of SSD; they follow from its layers, as U-Net's multiply-accumulates do.
_ENTRIES: Final = (
    ModelInfo("resnet18", "resnet", "ResNet-18", 224, 11_689_512, 1.814, _HE),
    ModelInfo("resnet34", "resnet", "ResNet-34", 224, 21_797_672, 3.664, _HE),
    ModelInfo("resnet50", "resnet", "ResNet-50 v1.5", 224, 25_557_032, 4.089, _HE),
    ModelInfo("resnet101", "resnet", "ResNet-101 v1.5", 224, 44_549_160, 7.801, _HE),
    ModelInfo("resnet152", "resnet", "ResNet-152 v1.5", 224, 60_192_808, 11.514, _HE),
    ModelInfo("vgg11", "vgg", "VGG-11", 224, 132_863_336, 7.609, _SIMONYAN),
    ModelInfo("vgg13", "vgg", "VGG-13", 224, 133_047_848, 11.308, _SIMONYAN),
    ModelInfo("vgg16", "vgg", "VGG-16", 224, 138_357_544, 15.470, _SIMONYAN),
    ModelInfo("vgg19", "vgg", "VGG-19", 224, 143_667_240, 19.632, _SIMONYAN),
    ModelInfo("densenet121", "densenet", "DenseNet-121", 224, 7_978_856, 2.834, _HUANG),
    ModelInfo("densenet161", "densenet", "DenseNet-161", 224, 28_681_000, 7.728, _HUANG),
    ModelInfo("densenet169", "densenet", "DenseNet-169", 224, 14_149_480, 3.360, _HUANG),
    ModelInfo("densenet201", "densenet", "DenseNet-201", 224, 20_013_928, 4.291, _HUANG),
    ModelInfo("inception_v3", "inception", "Inception-v3", 299, 23_834_568, 5.713, _SZEGEDY),
    ModelInfo("ssd_resnet50", "ssd", "SSD-ResNet-50", 512, 36_450_094, 22.332, _LIU),
    ModelInfo("mobilenet_v1", "mobilenet", "MobileNet-v1", 224, 4_231_976, 0.569, _HOWARD_2017),
    ModelInfo("mobilenet_v2", "mobilenet", "MobileNet-v2", 224, 3_504_872, 0.301, _SANDLER),
    ModelInfo(
        "mobilenet_v3_large", "mobilenet", "MobileNet-v3 Large", 224, 5_483_032, 0.217, _HOWARD_2019
    ),
    ModelInfo("efficientnet_b0", "efficientnet", "EfficientNet-B0", 224, 5_288_548, 0.386, _TAN),
    ModelInfo("squeezenet1_0", "squeezenet", "SqueezeNet 1.0", 224, 1_248_424, 0.819, _IANDOLA),
    ModelInfo("shufflenet_v2_x1_0", "shufflenet", "ShuffleNet-v2 x1.0", 224, 2_278_604, 0.145, _MA),
    ModelInfo("resnext50_32x4d", "resnet", "ResNeXt-50 32x4d", 224, 25_028_904, 4.230, _XIE),
    ModelInfo("unet", "unet", "U-Net", 256, 31_037_633, 48.167, _RONNEBERGER),
    ModelInfo("yolov3_tiny", "yolo", "YOLOv3-tiny", 416, 8_852_366, 2.782, _REDMON),
)

MODELS: Final[Mapping[str, ModelInfo]] = MappingProxyType({info.name: info for info in _ENTRIES})
"""Every built-in network by name."""

_PAPER: Final = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    *("vgg11", "vgg13", "vgg16", "vgg19"),
    *("densenet121", "densenet161", "densenet169", "densenet201"),
    *("inception_v3", "ssd_resnet50"),
)

SUITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "paper": _PAPER,
        "deployed": tuple(name for name in MODELS if name not in _PAPER),
        "all": tuple(MODELS),
    }
)
"""Names of networks by suite: the paper's fifteen in its order, what is deployed today, and all."""


def find(name: str) -> ModelInfo:
    """Return the entry of a built-in network.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        # The list is long: the likely one comes before it.
        raise UsageError(f"no built-in network '{name}'{hint or ';'} known: {', '.join(MODELS)}")
    return MODELS[name]


def suite(name: str) -> tuple[str, ...]:
    """Return the names of a suite's networks.

    Raises
    ------
    UsageError
        If there is no suite of that name.
    """
    if name not in SUITES:
        hint = did_you_mean(name, SUITES)
        raise UsageError(f"no suite '{name}'; known: {', '.join(SUITES)}{hint}")
    return SUITES[name]


def is_name(model: str) -> bool:
    """Return whether ``model`` means a built-in network, known or not, rather than a file.

    That is a word without a suffix, unless there is a file of that name. A folder, as `neocpu
    bundle` may have made one, is in the way of a network's name only if there is no such network.
    """
    path = Path(model)
    if os.sep in model or path.suffix:
        return False
    return not path.exists() or (path.is_dir() and model in MODELS)
