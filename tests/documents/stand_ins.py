"""Small models, pictures and packages in place of those that documents mention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

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

    def weights(name: str, *shape: int) -> TensorProto:
        scale = (2 / np.prod(shape[1:])) ** 0.5
        return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype("f4"), name)

    nodes = [
        helper.make_node("Conv", ["input", "w0"], ["c0"], name="stem", strides=[4, 4]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="body", strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w2"], ["scores"], name="head", transB=1),
    ]
    return model(
        nodes,
        {"input": [1, 3, 224, 224]},
        {"scores": [1, 1000]},
        [weights("w0", 16, 3, 4, 4), weights("w1", 32, 16, 3, 3), weights("w2", 1000, 32)],
    )


def pointwise(dims: list[Any], filters: int = 8) -> onnx.ModelProto:
    """Return ``relu(conv3x3(image))`` of images of these dimensions; a dimension may be a name."""
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((filters, dims[1], 3, 3)).astype("f4")
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    outputs = {"y": [dims[0], filters, *dims[2:]]}
    return model(nodes, {"image": dims}, outputs, [numpy_helper.from_array(kernel, "w")])


def detector() -> onnx.ModelProto:
    """Return a network from an image and its size to boxes and classes."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["classes"]),
        helper.make_node("Concat", ["size", "size"], ["boxes"], axis=0),
    ]
    inputs = {"image": [1, 3, 224, 224], "size": [2]}
    return model(nodes, inputs, {"boxes": [4], "classes": [1, 3]}, [])


def rated() -> onnx.ModelProto:
    """Return a network of samples, and of their rate, an integer."""
    nodes = [
        helper.make_node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["samples", "rate"], ["y"]),
    ]
    made = model(nodes, {"samples": [1, 576]}, {"y": [1, 576]}, [])
    made.graph.input.append(helper.make_tensor_value_info("sr", TensorProto.INT64, []))
    return made


def leaky(slope: float = 0.1) -> onnx.ModelProto:
    """Return a network with the operator that docs/models.md adds."""
    node = helper.make_node("Leaky", ["x"], ["y"], name="act", domain="my.domain", slope=slope)
    made = model([node], {"x": [1, 3, 8, 8]}, {"y": [1, 3, 8, 8]}, [])
    made.opset_import.append(helper.make_opsetid("my.domain", 1))
    return made


def unet() -> onnx.ModelProto:
    """Return a network that halves an image five times and joins the halves again."""
    rng = np.random.default_rng(0)
    nodes, initializers = [], []

    def convolution(source: str, target: str, channels: int, filters: int, **attributes: Any):
        kernel = (rng.standard_normal((filters, channels, 3, 3)) * 0.05).astype("f4")
        initializers.append(numpy_helper.from_array(kernel, f"{target}.w"))
        names = [source, f"{target}.w"]
        nodes.append(helper.make_node("Conv", names, [target], pads=[1, 1, 1, 1], **attributes))

    convolution("x", "c1", 3, 64, strides=[2, 2])
    for depth in range(1, 5):
        pool = helper.make_node(
            "MaxPool", [f"c{depth}"], [f"p{depth}"], kernel_shape=[2, 2], strides=[2, 2]
        )
        nodes.append(pool)
        convolution(f"p{depth}", f"c{depth + 1}", 64, 64)
    initializers.append(numpy_helper.from_array(np.array([1, 1, 2, 2], "f4"), "twice"))
    below = "c5"
    for depth in range(4, 0, -1):
        nodes.append(helper.make_node("Resize", [below, "", "twice"], [f"u{depth}"]))
        joined = f"j{depth}"
        names = [f"c{depth}", f"u{depth}"]
        nodes.append(helper.make_node("Concat", names, [joined], name=f"/up{depth}/Concat", axis=1))
        below = f"d{depth}"
        convolution(joined, below, 128, 64)
    return model(nodes, {"x": [1, 3, "h", "w"]}, {below: [1, 64, None, None]}, initializers)


def counted() -> onnx.ModelProto:
    """Return a loop that runs as often as an input says."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["next"]),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [4]),
        ],
    )
    loop = helper.make_node("Loop", ["steps", "", "x"], ["y"], name="/decoder/Loop", body=body)
    made = model([loop], {"x": [4]}, {"y": [4]}, [])
    made.graph.input.append(helper.make_tensor_value_info("steps", TensorProto.INT64, []))
    return made


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    initializers: list[TensorProto],
) -> onnx.ModelProto:
    """Return a model of float32 tensors with these shapes."""

    def values(shapes: dict[str, list[Any]]) -> list[onnx.ValueInfoProto]:
        float32 = TensorProto.FLOAT
        return [helper.make_tensor_value_info(n, float32, shape) for n, shape in shapes.items()]

    graph = helper.make_graph(nodes, "net", values(inputs), values(outputs), initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


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
