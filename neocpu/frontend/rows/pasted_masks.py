"""The loop that pastes each detection's mask into the image, as products of matrices.

torchvision's Mask R-CNN resizes a mask to the size of its box, which is data, and no static shape
bounds. Its rows and columns are interpolated alone: the image is ``rows @ mask @ columns``, with
weights that are zero outside the box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from neocpu.frontend.constant_tensors import constant_of, constant_tensors
from neocpu.frontend.extents import known_shapes
from neocpu.frontend.subgraphs import graphs_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS

Array = npt.NDArray[Any]

# Of masks of other heights than widths, so that they are told apart.
_MASK = (6, 5)
_TOLERANCE = 1e-4
# Of a tensor of a body that is run: an image of 16 megapixels.
_MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop over masks ``(n, 1, height, width)`` and integer boxes ``(n, 4)``, in that order.

    Attributes
    ----------
    masks, boxes : str
        What its body reads a row of.
    image : tuple of int
        Height and width of what it makes of each.
    """

    masks: str
    boxes: str
    image: tuple[int, int]


def replace_pasted_masks(model: onnx.ModelProto) -> None:
    """Replace loops that paste masks, in place; the model is of opset 11 or newer.

    What a loop does is found out by running its body on a few masks and boxes.
    """
    nodes = []
    for node in model.graph.node:
        is_loop = node.op_type == "Loop" and node.domain in STANDARD_DOMAINS
        found = _recognised(model, node) if is_loop else None
        nodes += [node] if found is None else _products(found, node.output[0])
    if len(nodes) != len(model.graph.node):
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _recognised(model: onnx.ModelProto, node: onnx.NodeProto) -> _Loop | None:
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    if body is None or len(node.input) != 3 or len(body.input) != 3 or len(body.output) != 2:
        return None
    index, _, state = (value.name for value in body.input)
    joined = next((n for n in body.node if body.output[1].name in n.output), None)
    if joined is None or joined.op_type != "Concat" or list(joined.input)[:1] != [state]:
        return None
    constants = constant_tensors(model.graph)
    start = constants.get(node.input[2])
    if start is None or 0 not in start.dims:
        return None
    nodes = _needed(body.node, joined.input[1])
    made = {name for each in nodes for name in each.output} | {index}
    read = [
        each.input[0]
        for each in nodes
        if each.op_type == "Gather" and each.input[1] == index and each.input[0] not in made
    ]
    if len(read) != 2 or not _counts_rows(model.graph, node.input[0], read[0]):
        return None
    outer = {name for each in nodes for name in each.input if name} - made - set(read)
    if any(name not in constants for name in outer):
        return None
    given = {name: numpy_helper.to_array(constants[name]) for name in outer} | {index: np.array(0)}
    image = _tried(model, nodes, joined.input[1], read, given)
    return None if image is None else _Loop(read[0], read[1], image)


def _needed(nodes: Sequence[onnx.NodeProto], result: str) -> list[onnx.NodeProto]:
    """Return the nodes that a value depends on."""
    wanted, kept = {result}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _counts_rows(graph: onnx.GraphProto, count: str, masks: str) -> bool:
    """Whether a value is the number of rows of a tensor."""
    makers = {name: node for node in graph.node for name in node.output}
    gather = makers.get(count)
    shape = makers.get(gather.input[0]) if gather is not None else None
    if gather is None or shape is None or (gather.op_type, shape.op_type) != ("Gather", "Shape"):
        return False
    first = constant_tensors(graph).get(gather.input[1])
    zero = first is not None and not numpy_helper.to_array(first).any()
    return zero and shape.input[0] == masks and not shape.attribute


def _tried(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    result: str,
    read: Sequence[str],
    given: Mapping[str, Array],
) -> tuple[int, int] | None:
    """Return the image's height and width if the body pastes masks into it, else None."""
    constants = {node.output[0]: constant_of(node) for node in nodes if node.op_type == "Constant"}
    constants |= given
    graph = helper.make_graph(
        [node for node in nodes if node.op_type != "Constant"],
        "body",
        [
            helper.make_tensor_value_info(read[0], TensorProto.FLOAT, [1, 1, *_MASK]),
            helper.make_tensor_value_info(read[1], TensorProto.INT64, [1, 4]),
        ],
        [onnx.ValueInfoProto(name=result)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    body = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
    rng = np.random.default_rng(0)
    if any(map(graphs_of, nodes)):
        return None
    try:
        inferred = onnx.shape_inference.infer_shapes(body, data_prop=True).graph
        if any(math.prod(shape) > _MOST_ELEMENTS for shape in known_shapes(inferred).values()):
            return None
        run = ReferenceEvaluator(body).run
        mask = rng.uniform(size=(1, 1, *_MASK)).astype(np.float32)
        (blank,) = run([result], {read[0]: mask, read[1]: np.array([[0, 0, 1, 1]])})
        _, height, width = blank.shape
        for box in _boxes(height, width):
            mask = rng.uniform(size=(1, 1, *_MASK)).astype(np.float32)
            (found,) = run([result], {read[0]: mask, read[1]: np.array([box])})
            if found.shape != (1, height, width):
                return None
            expected = pasted(mask[0, 0], box, height, width)
            if np.abs(found[0] - expected).max() > _TOLERANCE:
                return None
    except Exception:  # whatever a body that does something else trips over
        return None
    return height, width


def _boxes(height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return boxes within an image, of a pixel, and beyond each of its sides."""
    middle = width // 2, height // 2
    right, bottom = width - 1, height - 1
    return [
        (1, 2, min(9, right), min(7, bottom)),
        (*middle, *middle),
        (middle[0], middle[1], middle[0] + 2, middle[1] + 9),
        (-3, -4, 3, 2),
        (right - 4, bottom - 3, right + 5, bottom + 2),
        (-2, 3, 6, 5),
        (middle[0] + 1, middle[1], middle[0], middle[1] + 1),
    ]


def pasted(mask: Array, box: Sequence[int], height: int, width: int) -> Array:
    """Return an image with a mask in a box, which may lie beyond it."""
    x0, y0, x1, y1 = box
    rows = _weights(height, mask.shape[0], y0, y1)
    columns = _weights(width, mask.shape[1], x0, x1)
    image: Array = rows @ mask @ columns.T
    return image


def _weights(extent: int, pixels: int, start: int, end: int) -> Array:
    """Return how much of each of a mask's pixels goes into each of an image's: (extent, pixels)."""
    place = np.arange(extent)
    at = (place - start + 0.5) * (pixels / max(end - start + 1, 1)) - 0.5
    near = 1 - np.abs(np.clip(at, 0, pixels - 1)[:, None] - np.arange(pixels))
    inside = (place >= start) & (place <= end)
    return np.asarray(np.maximum(near, 0) * inside[:, None], np.float32)


class _Nodes:
    """Nodes that are written, and constants of theirs."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.base}/{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        array = np.asarray(value, kind)
        key = array.tobytes(), str(array.dtype), array.shape
        if key not in self._constants:
            tensor = numpy_helper.from_array(array)
            self._constants[key] = self.add("Constant", value=tensor)
        return self._constants[key]


def _products(loop: _Loop, result: str) -> list[onnx.NodeProto]:
    """Return nodes that compute what `pasted` does, for all masks."""
    graph = _Nodes(f"{result}/pasted")
    sizes = graph.add("Shape", loop.masks)
    sides: Mapping[str, str] = {}
    for name, extent, axis, corner in (
        ("rows", loop.image[0], 2, 1),
        ("columns", loop.image[1], 3, 0),
    ):
        pixels = graph.add("Gather", sizes, graph.constant(axis, np.int64), axis=0)
        first, last = (_corner(graph, loop.boxes, place) for place in (corner, corner + 2))
        sides = {**sides, name: _side(graph, extent, pixels, first, last)}
    flat = graph.add("Gather", loop.masks, graph.constant(0, np.int64), axis=1)
    across = graph.add("Transpose", sides["columns"], perm=[0, 2, 1])
    left = graph.add("MatMul", sides["rows"], flat)
    graph.nodes.append(helper.make_node("MatMul", [left, across], [result], graph.base))
    return graph.nodes


def _corner(graph: _Nodes, boxes: str, place: int) -> str:
    """Return one coordinate of all boxes as floats, ``(n, 1, 1)``."""
    column = graph.add("Gather", boxes, graph.constant(place, np.int64), axis=1)
    spread = graph.add("Reshape", column, graph.constant([-1, 1, 1], np.int64))
    return graph.add("Cast", spread, to=TensorProto.FLOAT)


def _side(graph: _Nodes, extent: int, pixels: str, first: str, last: str) -> str:
    """Return `_weights` of all boxes, whose first and last pixels are ``(n, 1, 1)``."""
    one, half = graph.constant(1), graph.constant(0.5)
    place = graph.constant(np.arange(extent).reshape(1, -1, 1))
    number = graph.add("Cast", pixels, to=TensorProto.FLOAT)
    length = graph.add("Max", graph.add("Add", graph.add("Sub", last, first), one), one)
    scale = graph.add("Div", number, length)
    distance = graph.add("Add", graph.add("Sub", place, first), half)
    at = graph.add("Sub", graph.add("Mul", distance, scale), half)
    within = graph.add("Clip", at, graph.constant(0), graph.add("Sub", number, one))
    zero, step = graph.constant(0, np.int64), graph.constant(1, np.int64)
    taps = graph.add("Cast", graph.add("Range", zero, pixels, step), to=TensorProto.FLOAT)
    off = graph.add("Abs", graph.add("Sub", within, taps))
    near = graph.add("Relu", graph.add("Sub", one, off))
    outside = graph.add("Or", graph.add("Less", place, first), graph.add("Greater", place, last))
    return graph.add("Where", outside, graph.constant(0), near)
