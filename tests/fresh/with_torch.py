"""The README's own model, timm's and Ultralytics', exported and compiled where PyTorch is.

No weights are downloaded: networks have random ones. Run it in the clone:
`.venv/bin/python tests/fresh/with_torch.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from use_model import BUILD, compare, in_one_process, on_the_command_line

os.environ["YOLO_AUTOINSTALL"] = "false"
WEIGHTS = 'weights="DEFAULT"'


def main() -> None:
    """Do all of it, in the folder for what is made."""
    readme = Path("README.md").read_text()
    BUILD.mkdir(exist_ok=True)
    os.chdir(BUILD)
    as_in_readme(readme)
    with_timm()
    on_the_command_line(with_ultralytics())


def as_in_readme(readme: str) -> None:
    """Run the first block of Python as it is there, but for the weights."""
    block = re.search(r"(?s)```python\n(.*?)```", readme)
    assert block is not None
    assert WEIGHTS in block[1]
    names: dict[str, Any] = {}
    exec(block[1].replace(WEIGHTS, "weights=None"), names)
    torch, net, module = names["torch"], names["net"], names["m"]
    image = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        expected = net(image).numpy()
    compare("README", [module(image.numpy())], [expected])


def with_timm() -> None:
    """Export by the older exporter, which Ultralytics and many others use."""
    import timm
    import torch

    net = timm.create_model("mobilenetv3_small_100", pretrained=False).eval()
    image = torch.rand(1, 3, 224, 224)
    path = BUILD / "timm.onnx"
    torch.onnx.export(net, (image,), str(path), input_names=["image"], dynamo=False)
    with torch.no_grad():
        in_one_process(path, {"image": image.numpy()}, [net(image).numpy()])


def with_ultralytics() -> Path:
    """Export a detector by its own command; return the model."""
    import torch
    from ultralytics import YOLO

    yolo = YOLO("yolov8n.yaml")
    path = Path(yolo.export(format="onnx", imgsz=160, simplify=False)).resolve()
    image = np.random.default_rng(0).random((1, 3, 160, 160), "float32")
    with torch.no_grad():
        # Exporting changed a copy of it.
        expected = yolo.model.fuse().eval()(torch.from_numpy(image))[0].numpy()
    in_one_process(path, {"images": image}, [expected])
    return path


if __name__ == "__main__":
    main()
