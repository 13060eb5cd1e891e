"""The onnx package's own test networks, given weights.

onnx ships nine classification networks of 2014 to 2018 without weights: ConstantOfShape nodes
stand in for them, so that every value would be equal. Here they become seeded initializers of He's
kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def light_model_path(name: str) -> Path:
    """Return the path of a network as onnx ships it, without weights."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return folder / f"light_{name}.onnx"


def light_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """Return a network with random weights that keep its activations finite and varied.

    - `name`: one of `LIGHT_MODELS`.
    - `seed`: seed of the weights.
    """
    model = onnx.load(light_model_path(name))
    graph = model.graph
    rng = np.random.default_rng(seed)
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    roles = _roles(graph)
    for node in made:
        shape = tuple(int(n) for n in onnx.numpy_helper.to_array(initializers[node.input[0]]))
        weight = _draw(roles[node.output[0]], shape, rng)
        graph.initializer.append(onnx.numpy_helper.from_array(weight, node.output[0]))
        # In IR version 3 every initializer is a graph input as well.
        graph.input.append(
            onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape)
        )
        graph.node.remove(node)
    _remove_unused(graph)
    return model


def _roles(graph: onnx.GraphProto) -> Mapping[str, tuple[str, int]]:
    """Return (consumer operator, input position) of every value, looking through Unsqueeze.

    A batch norm whose output is added to a shortcut counts as ``Residual``, a convolution of
    rectified data as ``ConvOfRelu``.
    """
    producers = {output: node for node in graph.node for output in node.output}
    roles: dict[str, tuple[str, int]] = {}
    for node in reversed(graph.node):
        after, _ = roles.get(node.output[0], ("", 0))
        kind = node.op_type
        if (kind, after) == ("BatchNormalization", "Sum"):
            kind = "Residual"
        elif kind == "Conv" and _is_rectified(node.input[0], producers):
            kind = "ConvOfRelu"
        elif (kind, after) == ("Gemm", "Softmax"):
            kind = "Logits"
        for index, value in enumerate(node.input):
            role = roles[node.output[0]] if node.op_type == "Unsqueeze" else (kind, index)
            roles[value] = role
    return roles


def _is_rectified(value: str, producers: Mapping[str, onnx.NodeProto]) -> bool:
    node = producers.get(value)
    if node is None or node.op_type not in ("Concat", "Transpose", "Reshape"):
        return node is not None and node.op_type == "Relu"
    return _is_rectified(node.input[0], producers)


def _draw(role: tuple[str, int], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    match role:
        case ("ConvOfRelu", 1):  # He: twice the variance makes up for the half that ReLU cut
            return _uniform(rng, shape, mean=0, std=np.sqrt(2 / np.prod(shape[1:])))
        case ("Conv", 1):
            return _uniform(rng, shape, mean=0, std=np.sqrt(1 / np.prod(shape[1:])))
        case ("Gemm", 1):
            return _uniform(rng, shape, mean=0, std=np.sqrt(1 / shape[-1]))
        case ("Logits", 1):  # a softmax of large logits has a single 1
            return _uniform(rng, shape, mean=0, std=np.sqrt(1 / 16 / shape[-1]))
        case ("Residual", 1):  # sixteen sums of full-size branches would overflow the softmax
            return _uniform(rng, shape, mean=0.3, std=1 / 32)
        case ("BatchNormalization" | "Residual", 4) | ("BatchNormalization" | "Mul", 1):
            return _uniform(rng, shape, mean=1, std=1 / 8)
        case _:  # biases and means
            return _uniform(rng, shape, mean=0, std=1 / 8)


def _uniform(
    rng: np.random.Generator, shape: tuple[int, ...], *, mean: float, std: float
) -> np.ndarray:
    # Uniform numbers come several times faster than normal ones: VGG-19 takes 144 million.
    values = rng.random(shape, np.float32)
    values -= np.float32(0.5)
    values *= np.float32(std * np.sqrt(12))
    values += np.float32(mean)
    return values


def _remove_unused(graph: onnx.GraphProto) -> None:
    used = {value for node in graph.node for value in node.input}
    for field in (graph.initializer, graph.input):
        kept = [value for value in field if value.name in used]
        del field[:]
        field.extend(kept)
