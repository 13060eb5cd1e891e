"""A module reads pictures from OpenCV, whose threads work at the same time.

Run it in the clone: `.venv/bin/python tests/fresh/with_opencv.py`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from use_model import BUILD, compare, in_one_process, neocpu, on_the_command_line, only_input

PICTURES = 8


def main() -> None:
    """Run a network in OpenCV and compiled; then pictures through both libraries at once."""
    BUILD.mkdir(exist_ok=True)
    model = BUILD / "resnet18.onnx"
    neocpu("models", "export", "resnet18", "-o", model)
    images = [prepare(path) for path in write_pictures()]
    network = cv2.dnn.readNetFromONNX(str(model))
    expected = [forward(network, image) for image in images]
    name = only_input(model)[0]
    in_one_process(model, {name: images[0]}, expected[:1])
    at_once(model.with_suffix(".so"), expected)
    on_the_command_line(model)


def write_pictures() -> list[Path]:
    """Write pictures of noise."""
    rng = np.random.default_rng(0)
    paths = [BUILD / f"picture{number}.png" for number in range(PICTURES)]
    for path in paths:
        assert cv2.imwrite(str(path), rng.integers(0, 256, (480, 640, 3), "uint8"))
    return paths


def prepare(path: Path) -> np.ndarray[Any, Any]:
    """Read a picture as the network takes it."""
    return cv2.dnn.blobFromImage(cv2.imread(str(path)), 1 / 255, (224, 224), swapRB=True)


def forward(network: Any, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of OpenCV's result: the next call would overwrite the memory."""
    network.setInput(image)
    return np.array(network.forward())


def at_once(artifact: Path, expected: list[np.ndarray[Any, Any]]) -> None:
    """Read and run pictures in several threads."""
    import neocpu

    paths = [BUILD / f"picture{number}.png" for number in range(PICTURES)]
    with neocpu.load(artifact) as module, ThreadPoolExecutor(4) as threads:
        for outputs in threads.map(lambda path: [module(prepare(path))], paths):
            compare("a picture", outputs, [expected.pop(0)])


if __name__ == "__main__":
    main()
