"""The built-in networks, under the names of their papers and torchvision.

A network is one builder function in a file of its family, and one line of `_PUBLISHED`. A family's
module is imported when one of its networks is built.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.frontend.shapes.input_shapes import InputShapes

if TYPE_CHECKING:
    import onnx

CHANNELS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about a network that are known without building it."""

    name: str
    module: str  # below this package, with a builder function of the network's name
    title: str
    image: int  # the default height and width in pixels
    parameters: int  # the published trained ones, without batch-norm statistics
    gmacs: float  # the published multiply-accumulates of one image, in 1e9
    source: str


_HE: Final = "He et al., CVPR 2016; torchvision"
_SIMONYAN: Final = "Simonyan and Zisserman, ICLR 2015; torchvision"
_HUANG: Final = "Huang et al., CVPR 2017; torchvision"
_SZEGEDY: Final = "Szegedy et al., CVPR 2016; torchvision"
_LIU: Final = "Liu et al., ECCV 2016; GluonCV"
_HOWARD_2017: Final = "Howard et al., 2017"
_SANDLER: Final = "Sandler et al., CVPR 2018; torchvision"
_HOWARD_2019: Final = "Howard et al., ICCV 2019; torchvision"
_TAN: Final = "Tan and Le, ICML 2019; torchvision"
_IANDOLA: Final = "Iandola et al., 2016; torchvision"
_MA: Final = "Ma et al., ECCV 2018; torchvision"
_XIE: Final = "Xie et al., CVPR 2017; torchvision"
_RONNEBERGER: Final = "Ronneberger et al., MICCAI 2015; milesial/Pytorch-UNet"
_REDMON: Final = "Redmon and Farhadi, 2018; Darknet"

# Parameters and multiply-accumulates of torchvision's networks are those of its documentation.
# Nobody published those of SSD: they are computed from its layers, as are U-Net's
# multiply-accumulates.
_PUBLISHED: Final = (
    ("resnet18", "resnet", "ResNet-18", 224, 11_689_512, 1.814, _HE),
    ("resnet34", "resnet", "ResNet-34", 224, 21_797_672, 3.664, _HE),
    ("resnet50", "resnet", "ResNet-50 v1.5", 224, 25_557_032, 4.089, _HE),
    ("resnet101", "resnet", "ResNet-101 v1.5", 224, 44_549_160, 7.801, _HE),
    ("resnet152", "resnet", "ResNet-152 v1.5", 224, 60_192_808, 11.514, _HE),
    ("vgg11", "plain", "VGG-11", 224, 132_863_336, 7.609, _SIMONYAN),
    ("vgg13", "plain", "VGG-13", 224, 133_047_848, 11.308, _SIMONYAN),
    ("vgg16", "plain", "VGG-16", 224, 138_357_544, 15.470, _SIMONYAN),
    ("vgg19", "plain", "VGG-19", 224, 143_667_240, 19.632, _SIMONYAN),
    ("densenet121", "concatenating", "DenseNet-121", 224, 7_978_856, 2.834, _HUANG),
    ("densenet161", "concatenating", "DenseNet-161", 224, 28_681_000, 7.728, _HUANG),
    ("densenet169", "concatenating", "DenseNet-169", 224, 14_149_480, 3.360, _HUANG),
    ("densenet201", "concatenating", "DenseNet-201", 224, 20_013_928, 4.291, _HUANG),
    ("inception_v3", "concatenating", "Inception-v3", 299, 23_834_568, 5.713, _SZEGEDY),
    ("ssd_resnet50", "detectors", "SSD-ResNet-50", 512, 36_450_094, 22.332, _LIU),
    ("mobilenet_v1", "mobile", "MobileNet-v1", 224, 4_231_976, 0.569, _HOWARD_2017),
    ("mobilenet_v2", "mobile", "MobileNet-v2", 224, 3_504_872, 0.301, _SANDLER),
    ("mobilenet_v3_large", "mobile", "MobileNet-v3 Large", 224, 5_483_032, 0.217, _HOWARD_2019),
    ("efficientnet_b0", "mobile", "EfficientNet-B0", 224, 5_288_548, 0.386, _TAN),
    ("squeezenet1_0", "plain", "SqueezeNet 1.0", 224, 1_248_424, 0.819, _IANDOLA),
    ("shufflenet_v2_x1_0", "mobile", "ShuffleNet-v2 x1.0", 224, 2_278_604, 0.145, _MA),
    ("resnext50_32x4d", "resnet", "ResNeXt-50 32x4d", 224, 25_028_904, 4.230, _XIE),
    ("unet", "concatenating", "U-Net", 256, 31_037_633, 48.167, _RONNEBERGER),
    ("yolov3_tiny", "detectors", "YOLOv3-tiny", 416, 8_852_366, 2.782, _REDMON),
)

MODELS: Final[Mapping[str, ModelInfo]] = MappingProxyType(
    {
        name: ModelInfo(
            name=name,
            module=module,
            title=title,
            image=image,
            parameters=parameters,
            gmacs=gmacs,
            source=source,
        )
        for name, module, title, image, parameters, gmacs, source in _PUBLISHED
    }
)
"""Every built-in network by name."""

SUITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"paper": tuple(MODELS)[:15], "deployed": tuple(MODELS)[15:], "all": tuple(MODELS)}
)
"""Names of networks by suite: the paper's fifteen in its order, today's networks, and all."""


def find(name: str) -> ModelInfo:
    """Return the entry of a built-in network. Raises UsageError if there is none."""
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        # The list is long, so the likely name comes before it.
        raise UsageError(f"no built-in network '{name}'{hint or ';'} known: {', '.join(MODELS)}")
    return MODELS[name]


def suite(name: str) -> tuple[str, ...]:
    """Return the names of a suite's networks; there being none is a `UsageError`."""
    if name not in SUITES:
        hint = did_you_mean(name, SUITES)
        raise UsageError(f"no suite '{name}'; known: {', '.join(SUITES)}{hint}")
    return SUITES[name]


def is_name(model: str) -> bool:
    """Return whether ``model`` means a built-in network, known or not, rather than a file.

    A name has no suffix, and no file is called so. A folder may be (`neocpu bundle` makes some) if
    there is a network of that name.
    """
    path = Path(model)
    if os.sep in model or path.suffix:
        return False
    return not path.exists() or (path.is_dir() and model in MODELS)


def build(
    name: str, batch: int = 1, seed: int = 0, image: tuple[int, int] | None = None
) -> onnx.ModelProto:
    """Build a network with random weights that the seed decides, for ``image`` height and width.

    Shapes are static, and the one input is ``input`` of shape ``(batch, 3, height, width)``. An
    unknown name, and an image that is too small for the network, are a `UsageError`.
    """
    info = find(name)
    if batch < 1:
        raise UsageError(f"batch must be at least 1, got {batch}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}")
    height, width = image if image is not None else (info.image, info.image)
    if min(height, width) < 1:
        raise UsageError(f"an image of {height}x{width} pixels is empty")
    from neocpu.frontend.models.network_builder import NetworkBuilder  # imports onnx

    net = NetworkBuilder(name, (batch, CHANNELS, height, width), seed)
    builder = getattr(importlib.import_module(f"{__name__}.{info.module}"), name)
    try:
        return net.finish(builder(net))
    except UsageError as error:
        raise UsageError(f"{name} of {height}x{width} pixels: {error}") from None


def build_with_shapes(name: str, shapes: InputShapes) -> onnx.ModelProto:
    """Build a network for the shape that ``--shape`` gives its input, or for its default shape.

    ``--batch`` sets the number of images. A `UsageError` says that a shape is not of the form
    ``input:N,3,H,W``, or that the batch is not N.
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
