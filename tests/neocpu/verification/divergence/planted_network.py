"""A small network of many kinds of operators, and faults to plant in its artifacts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
from forgery import sign, with_header
from onnx import helper

from neocpu.building.elf import read_elf
from neocpu.building.weights_digest import WeightsDigest
from neocpu.plan.model_values import ModelValue, values_in_order
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header import DIGEST_SECTION, WEIGHTS_SECTION, ArtifactHeader
from neocpu.runtime.header_parts import Placement
from tests.neocpu.frontend.onnx_models import onnx_model

LIMIT, SLOPE, EPSILON = 1.37, 0.0137, 0.0123
"""Numbers that occur only in the code of kernels."""


def network() -> onnx.ModelProto:
    """Return convolutions, a pool, norms, a concatenation, attention and dense layers."""
    rng, nodes, arrays = np.random.default_rng(0), [], {}

    def weight(name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        scaled = rng.standard_normal(shape) / np.sqrt(fan_in)
        arrays[name] = scaled.astype(np.float32)
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def conv(x: str, y: str, shape: tuple[int, ...], **attributes: object) -> str:
        inputs = [x, weight(f"w_{y}", *shape), weight(f"b_{y}", shape[0])]
        pad = shape[2] // 2
        return node("Conv", inputs, y, pads=[pad] * 4, **attributes)

    def dense(x: str, y: str, outputs: int, inputs: int) -> str:
        product = node("MatMul", [x, weight(f"w_{y}", inputs, outputs)], f"{y}_product")
        return node("Add", [product, weight(f"b_{y}", outputs)], y)

    def number(name: str, *values: float, dtype: type = np.float32) -> str:
        arrays[name] = np.array(values[0] if len(values) == 1 else values, dtype)
        return name

    stem = conv("x", "stem", (32, 3, 3, 3))
    clipped = node("Clip", [stem, number("low", -LIMIT), number("high", LIMIT)], "clipped")
    each = node("LeakyRelu", [conv(clipped, "each", (32, 1, 3, 3), group=32)], "leaky", alpha=SLOPE)
    point = conv(each, "point", (48, 32, 1, 1))
    parts = [conv(point, "left", (17, 48, 3, 3)), conv(point, "right", (24, 48, 1, 1))]
    both = node("Concat", parts, "both.parts", axis=1)
    pool = node("MaxPool", [both], "pool", kernel_shape=[2, 2], strides=[2, 2])
    scale = [weight("s_norm", 41), weight("b_norm", 41)]
    norm = node("InstanceNormalization", [pool, *scale], "norm", epsilon=EPSILON)
    again = conv(norm, "again", (41, 41, 3, 3))
    block = node("Relu", [node("Add", [again, norm], "sum")], "block")
    less = node("Sub", [conv(block, "one", (41, 41, 1, 1)), pool], "less")
    rows = node("Reshape", [less, number("rows_shape", 1, 41, 100, dtype=np.int64)], "rows_t")
    rows = node("Transpose", [rows], "rows", perm=[0, 2, 1])
    scale = [weight("s_layer", 41), weight("b_layer", 41)]
    layer = node("LayerNormalization", [rows, *scale], "layer", axis=-1)
    query, key, value = (dense(layer, name, 24, 41) for name in ("query", "key", "value"))
    turned = node("Transpose", [key], "turned", perm=[0, 2, 1])
    scores = node("MatMul", [query, turned], "scores")
    shares = node(
        "Softmax", [node("Mul", [scores, number("s", 0.25)], "scaled")], "shares", axis=-1
    )
    seen = node("MatMul", [shares, value], "seen")
    after = node("Add", [dense(seen, "after", 41, 24), rows], "stream")
    arrays["axis"] = np.array([1], np.int64)
    dense(node("ReduceMean", [after, "axis"], "mean"), "y", 10, 41)
    return onnx_model(nodes, {"x": [1, 3, 20, 20]}, {"y": [1, 1, 10]}, arrays)


def shuffled_network() -> onnx.ModelProto:
    """Return two units of ShuffleNet-v2, whose channels stay in place."""
    rng, nodes, arrays = np.random.default_rng(0), [], {}

    def node(kind: str, inputs: list[str], outputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, outputs, name=f"n_{outputs[0]}", **attributes))
        return outputs[0]

    def conv(x: str, y: str, outputs: int, inputs: int) -> str:
        shape = (outputs, inputs, 1, 1)
        arrays[f"w_{y}"] = (rng.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)
        node("Conv", [x, f"w_{y}"], [f"{y}_conv"])
        return node("Relu", [f"{y}_conv"], [y])

    arrays["parts"] = np.array([1, 2, 10, 7, 7], np.int64)
    arrays["whole"] = np.array([1, 20, 7, 7], np.int64)
    last = conv("x", "first", 20, 3)
    for unit in "ab":
        node("Split", [last], [f"{unit}_kept", f"{unit}_half"], axis=1, num_outputs=2)
        own = conv(conv(f"{unit}_half", f"{unit}_one", 10, 10), f"{unit}_two", 10, 10)
        both = node("Concat", [f"{unit}_kept", own], [f"{unit}_both"], axis=1)
        split = node("Reshape", [both, "parts"], [f"{unit}_split"])
        turned = node("Transpose", [split], [f"{unit}_turned"], perm=[0, 2, 1, 3, 4])
        last = node("Reshape", [turned, "whole"], [f"{unit}_mixed"])
    conv(last, "y", 8, 20)
    return onnx_model(nodes, {"x": [1, 3, 7, 7]}, {"y": [1, 8, 7, 7]}, arrays)


class Planter:
    """A copy of an artifact to change, with valid digests afterwards."""

    def __init__(self, path: Path) -> None:
        self.header: ArtifactHeader = read_header(path)
        self._data = bytearray(path.read_bytes())
        values = values_in_order(
            self.header.plan.values, len(self.header.calls), self.header.arena_bytes
        )
        self.values: dict[str, ModelValue] = {value.name: value for value in values}

    def call(self, tensor: str) -> int:
        """Return the position of the call that makes a tensor."""
        return self.values[tensor].calls - 1

    def weights(self, tensor: str) -> list[np.ndarray]:
        """Return the weights that the call which makes a tensor reads, to change them."""
        header = self.header
        first, end = len(header.inputs), len(header.inputs) + len(header.weights)
        numbers = header.calls[self.call(tensor)][1]
        return [self._array(header.weights[n - first]) for n in numbers if first <= n < end]

    def _array(self, place: Placement) -> np.ndarray:
        section = read_elf(memoryview(self._data)).find(WEIGHTS_SECTION)
        size, start = place.end - place.offset, section.offset + place.offset
        memory = np.frombuffer(self._data, np.uint8, size, start)
        return memory.view(place.dtype).reshape(place.shape)

    def replace_number(self, old: float, new: float) -> None:
        """Change a number in the code."""
        section = read_elf(memoryview(self._data)).find(WEIGHTS_SECTION)
        before, after = (np.float32(number).tobytes() for number in (old, new))
        code = bytes(self._data[: section.offset])
        assert before in code
        self._data[: section.offset] = code.replace(before, after)

    def exchange(self, tensor: str, one: int, other: int) -> None:
        """Exchange two tensors that the call which makes a tensor reads."""
        document = self.header.to_json()
        call = document["calls"][self.call(tensor)]
        call[1 + one], call[1 + other] = call[1 + other], call[1 + one]
        self._data = with_header(bytes(self._data), json.dumps(document).encode())

    def tell(self, plan: dict[str, object]) -> None:
        """Replace parts of the plan."""
        document = self.header.to_json()
        document["plan"] |= plan
        self._data = with_header(bytes(self._data), json.dumps(document).encode())

    def write(self, path: Path) -> Path:
        """Write the artifact with valid digests."""
        elf = read_elf(memoryview(self._data))
        weights, digest = elf.find(WEIGHTS_SECTION), elf.find(DIGEST_SECTION)
        sums = WeightsDigest()
        sums.update(bytes(self._data[weights.offset : weights.offset + weights.size]))
        end = digest.offset + 2 * hashlib.sha256().digest_size
        self._data[end - hashlib.sha256().digest_size : end] = sums.digest()
        path.write_bytes(sign(self._data))
        return path
