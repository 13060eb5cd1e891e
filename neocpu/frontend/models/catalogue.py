"""The catalogue of built-in networks and suites; nothing here builds a network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean

__all__ = ["MODELS", "SUITES", "ModelInfo", "find", "is_name", "suite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about a network that are known without building it.

    Attributes
    ----------
    name : str
        The name on the command line, and of the builder function.
    module : str
        The module of the builder, below ``neocpu.frontend.models``.
    title : str
        The name in texts.
    image : int
        Height and width of the default input, in pixels.
    parameters : int
        Published number of trained parameters (batch-norm statistics are not trained).
    gmacs : float
        Published multiply-accumulates of one image, in units of 1e9.
    source : str
        The publication of the architecture.
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
# Nobody published those of SSD: they are computed from its layers, as are U-Net's
# multiply-accumulates.
_ENTRIES: Final = (
    ModelInfo(
        name="resnet18",
        module="resnet",
        title="ResNet-18",
        image=224,
        parameters=11_689_512,
        gmacs=1.814,
        source=_HE,
    ),
    ModelInfo(
        name="resnet34",
        module="resnet",
        title="ResNet-34",
        image=224,
        parameters=21_797_672,
        gmacs=3.664,
        source=_HE,
    ),
    ModelInfo(
        name="resnet50",
        module="resnet",
        title="ResNet-50 v1.5",
        image=224,
        parameters=25_557_032,
        gmacs=4.089,
        source=_HE,
    ),
    ModelInfo(
        name="resnet101",
        module="resnet",
        title="ResNet-101 v1.5",
        image=224,
        parameters=44_549_160,
        gmacs=7.801,
        source=_HE,
    ),
    ModelInfo(
        name="resnet152",
        module="resnet",
        title="ResNet-152 v1.5",
        image=224,
        parameters=60_192_808,
        gmacs=11.514,
        source=_HE,
    ),
    ModelInfo(
        name="vgg11",
        module="vgg",
        title="VGG-11",
        image=224,
        parameters=132_863_336,
        gmacs=7.609,
        source=_SIMONYAN,
    ),
    ModelInfo(
        name="vgg13",
        module="vgg",
        title="VGG-13",
        image=224,
        parameters=133_047_848,
        gmacs=11.308,
        source=_SIMONYAN,
    ),
    ModelInfo(
        name="vgg16",
        module="vgg",
        title="VGG-16",
        image=224,
        parameters=138_357_544,
        gmacs=15.470,
        source=_SIMONYAN,
    ),
    ModelInfo(
        name="vgg19",
        module="vgg",
        title="VGG-19",
        image=224,
        parameters=143_667_240,
        gmacs=19.632,
        source=_SIMONYAN,
    ),
    ModelInfo(
        name="densenet121",
        module="densenet",
        title="DenseNet-121",
        image=224,
        parameters=7_978_856,
        gmacs=2.834,
        source=_HUANG,
    ),
    ModelInfo(
        name="densenet161",
        module="densenet",
        title="DenseNet-161",
        image=224,
        parameters=28_681_000,
        gmacs=7.728,
        source=_HUANG,
    ),
    ModelInfo(
        name="densenet169",
        module="densenet",
        title="DenseNet-169",
        image=224,
        parameters=14_149_480,
        gmacs=3.360,
        source=_HUANG,
    ),
    ModelInfo(
        name="densenet201",
        module="densenet",
        title="DenseNet-201",
        image=224,
        parameters=20_013_928,
        gmacs=4.291,
        source=_HUANG,
    ),
    ModelInfo(
        name="inception_v3",
        module="inception",
        title="Inception-v3",
        image=299,
        parameters=23_834_568,
        gmacs=5.713,
        source=_SZEGEDY,
    ),
    ModelInfo(
        name="ssd_resnet50",
        module="ssd",
        title="SSD-ResNet-50",
        image=512,
        parameters=36_450_094,
        gmacs=22.332,
        source=_LIU,
    ),
    ModelInfo(
        name="mobilenet_v1",
        module="mobilenet",
        title="MobileNet-v1",
        image=224,
        parameters=4_231_976,
        gmacs=0.569,
        source=_HOWARD_2017,
    ),
    ModelInfo(
        name="mobilenet_v2",
        module="mobilenet",
        title="MobileNet-v2",
        image=224,
        parameters=3_504_872,
        gmacs=0.301,
        source=_SANDLER,
    ),
    ModelInfo(
        name="mobilenet_v3_large",
        module="mobilenet",
        title="MobileNet-v3 Large",
        image=224,
        parameters=5_483_032,
        gmacs=0.217,
        source=_HOWARD_2019,
    ),
    ModelInfo(
        name="efficientnet_b0",
        module="efficientnet",
        title="EfficientNet-B0",
        image=224,
        parameters=5_288_548,
        gmacs=0.386,
        source=_TAN,
    ),
    ModelInfo(
        name="squeezenet1_0",
        module="squeezenet",
        title="SqueezeNet 1.0",
        image=224,
        parameters=1_248_424,
        gmacs=0.819,
        source=_IANDOLA,
    ),
    ModelInfo(
        name="shufflenet_v2_x1_0",
        module="shufflenet",
        title="ShuffleNet-v2 x1.0",
        image=224,
        parameters=2_278_604,
        gmacs=0.145,
        source=_MA,
    ),
    ModelInfo(
        name="resnext50_32x4d",
        module="resnet",
        title="ResNeXt-50 32x4d",
        image=224,
        parameters=25_028_904,
        gmacs=4.230,
        source=_XIE,
    ),
    ModelInfo(
        name="unet",
        module="unet",
        title="U-Net",
        image=256,
        parameters=31_037_633,
        gmacs=48.167,
        source=_RONNEBERGER,
    ),
    ModelInfo(
        name="yolov3_tiny",
        module="yolo",
        title="YOLOv3-tiny",
        image=416,
        parameters=8_852_366,
        gmacs=2.782,
        source=_REDMON,
    ),
)

MODELS: Final[Mapping[str, ModelInfo]] = MappingProxyType({info.name: info for info in _ENTRIES})
"""Every built-in network by name."""

_PAPER: Final = tuple(
    """
    resnet18 resnet34 resnet50 resnet101 resnet152 vgg11 vgg13 vgg16 vgg19 densenet121 densenet161
    densenet169 densenet201 inception_v3 ssd_resnet50
    """.split()
)

SUITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "paper": _PAPER,
        "deployed": tuple(name for name in MODELS if name not in _PAPER),
        "all": tuple(MODELS),
    }
)
"""Names of networks by suite: the paper's fifteen in its order, today's networks, and all."""


def find(name: str) -> ModelInfo:
    """Return the entry of a built-in network.

    Raises
    ------
    UsageError
        There is no network of that name.
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        # The list is long, so the likely name comes before it.
        raise UsageError(f"no built-in network '{name}'{hint or ';'} known: {', '.join(MODELS)}")
    return MODELS[name]


def suite(name: str) -> tuple[str, ...]:
    """Return the names of a suite's networks.

    Raises
    ------
    UsageError
        There is no suite of that name.
    """
    if name not in SUITES:
        hint = did_you_mean(name, SUITES)
        raise UsageError(f"no suite '{name}'; known: {', '.join(SUITES)}{hint}")
    return SUITES[name]


def is_name(model: str) -> bool:
    """Return whether ``model`` means a built-in network, known or not, rather than a file.

    Such a name is a word without a suffix, unless there is a file of that name. A folder of that
    name, as `neocpu bundle` may have made, counts only if there is no such network.
    """
    path = Path(model)
    if os.sep in model or path.suffix:
        return False
    return not path.exists() or (path.is_dir() and model in MODELS)
