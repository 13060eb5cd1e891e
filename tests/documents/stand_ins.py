"""Small models, pictures and packages in place of those that documents mention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image
from text_models import floats, text_model

#: What the README asks of PyTorch. `make fresh WITH=torch` runs it with PyTorch itself.
_TORCH = """
import os, sys, types
import onnx, numpy as np

def zeros(*shape):
    return np.zeros(shape, np.float32)

class _Network:
    def eval(self):
        return self

def _export(network, arguments, path):
    assert isinstance(network, _Network) and arguments[0].shape == (1, 3, 224, 224)
    onnx.save(onnx.load("resnet50.onnx"), path)
    # TVM looks for PyTorch too, and must not find this.
    del sys.modules["torch"]
    sys.path.remove(os.path.dirname(__file__))
"""


def classifier() -> onnx.ModelProto:
    """Return a small network from ``float32[1,3,224,224]`` to ``float32[1,1000]``."""
    rng = np.random.default_rng(0)
    shapes = (16, 3, 4, 4), (32, 16, 3, 3), (1000, 32)
    weights = [floats(*shape, seed=rng, scale=(2 / np.prod(shape[1:])) ** 0.5) for shape in shapes]
    return text_model(
        """net (float[1, 3, 224, 224] input) => (float[1, 1000] scores) {
            [stem] c0 = Conv <strides = [4, 4]> (input, w0)
            r0 = Relu (c0)
            [body] c1 = Conv <strides = [2, 2]> (r0, w1)
            r1 = Relu (c1)
            mean = GlobalAveragePool (r1)
            flat = Flatten (mean)
            [head] scores = Gemm <transB = 1> (flat, w2)
        }""",
        {f"w{number}": each for number, each in enumerate(weights)},
    )


def pointwise(dims: list[Any], filters: int = 8) -> onnx.ModelProto:
    """Return ``relu(conv3x3(image))`` of images of these dimensions; a dimension may be a name."""
    given, made = (", ".join(map(str, each)) for each in (dims, [dims[0], filters, *dims[2:]]))
    return text_model(
        f"""net (float[{given}] image) => (float[{made}] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (image, w)
            y = Relu (c)
        }}""",
        {"w": floats(filters, dims[1], 3, 3)},
    )


def detector() -> onnx.ModelProto:
    """Return a network from an image and its size to boxes and classes."""
    return text_model(
        """net (float[1, 3, 224, 224] image, float[2] size)
            => (float[4] boxes, float[1, 3] classes) {
            mean = GlobalAveragePool (image)
            classes = Flatten (mean)
            boxes = Concat <axis = 0> (size, size)
        }"""
    )


def rated() -> onnx.ModelProto:
    """Return a network of samples, and of their rate, an integer."""
    return text_model(
        """net (float[1, 576] samples, int64 sr) => (float[1, 576] y) {
            rate = Cast <to = 1> (sr)
            y = Div (samples, rate)
        }"""
    )


def leaky(slope: float = 0.1) -> onnx.ModelProto:
    """Return a network with the operator that docs/models.md adds."""
    node = f"[act] y = my.domain.Leaky <slope: float = {slope}> (x)"
    graph = f"net (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {{ {node} }}"
    return text_model(graph, domains='"my.domain": 1')


def unet() -> onnx.ModelProto:
    """Return a network that halves an image five times and joins the halves again."""
    rng = np.random.default_rng(0)
    lines, weights = [], {"twice": np.array([1, 1, 2, 2], np.float32)}

    def convolution(source: str, target: str, channels: int, strides: str = "") -> None:
        weights[f"w_{target}"] = floats(64, channels, 3, 3, seed=rng, scale=0.05)
        attributes = f"pads = [1, 1, 1, 1]{strides}"
        lines.append(f"{target} = Conv <{attributes}> ({source}, w_{target})")

    convolution("x", "c1", 3, ", strides = [2, 2]")
    for n in range(1, 5):
        lines.append(f"p{n} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c{n})")
        convolution(f"p{n}", f"c{n + 1}", 64)
    below = "c5"
    for n in range(4, 0, -1):
        lines.append(f"u{n} = Resize ({below}, , twice)")
        lines.append(f"j{n} = Concat <axis = 1> (c{n}, u{n})")
        below = f"d{n}"
        convolution(f"j{n}", below, 128)
    graph = "net (float[1, 3, h, w] x) => (float[1, 64, oh, ow] d1)"
    made = text_model(f"{graph} {{ {' '.join(lines)} }}", weights)
    for node in made.graph.node:
        if node.op_type == "Concat":
            node.name = f"/up{node.output[0][1:]}/Concat"
    return made


def counted() -> onnx.ModelProto:
    """Return a loop that runs as often as an input says."""
    made = text_model(
        """net (float[4] x, int64 steps) => (float[4] y) {
            y = Loop <body = body (int64 step, bool going, float[4] state)
                => (bool on, float[4] next) {
                    next = Add (state, state)
                    on = Identity (going)
                }> (steps, , x)
        }"""
    )
    made.graph.node[0].name = "/decoder/Loop"
    return made


def write_photos(folder: Path, count: int = 6) -> None:
    """Write pictures of noise, each of another size."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(0, 256, (240 + number, 320, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def write_torch(folder: Path) -> None:
    """Write packages ``torch`` and ``torchvision`` that export an existing file."""
    folder.mkdir()
    (folder / "torch.py").write_text(
        f"{_TORCH}\nonnx = types.SimpleNamespace(export=_export, save=onnx.save, load=onnx.load)\n"
    )
    (folder / "torchvision.py").write_text(
        "import types\nfrom torch import _Network\n\n"
        "def resnet50(weights):\n    return _Network()\n\n"
        "models = types.SimpleNamespace(resnet50=resnet50)\n"
    )
