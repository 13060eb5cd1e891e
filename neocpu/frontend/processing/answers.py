"""Nodes after the graph that make probabilities and best classes, or suppress a YOLO's boxes.

As in ultralytics' prediction, a box has the class that it scores best in, and suppresses others of
that class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.onnx_graph.names import fresh_names, rename
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.processing.geometry import Geometry
from neocpu.frontend.processing.processing import Suppression
from neocpu.frontend.unsupported import STANDARD_DOMAINS

CLASSES_AXIS: Final = 1
BEST: Final = 5


def answer(graph: onnx.GraphProto, spec: TensorSpec, kind: str) -> None:
    """Replace an output of scores ``(N, classes, ...)`` by an answer, in place.

    The opset is 13 or newer. The kind is ``softmax``, probabilities; ``argmax``, the best class
    (int64), without its axis; or ``top5``, the best five classes (int64) followed by another
    output, ``NAME.scores``, with their probabilities. A Softmax makes probabilities already. A
    `UsageError` refuses an output that is not a float tensor of two or four dimensions.
    """
    name, shape = spec.name, spec.shape
    if len(shape) not in (2, 4) or not spec.dtype.startswith("float"):
        raise UsageError(
            f"--output {name}={kind}: output '{name}' is {spec.dtype} of shape "
            f"{'x'.join(map(str, shape))}, no scores of classes: these have two dimensions or "
            "four, classes in the second"
        )
    place = next(i for i, value in enumerate(graph.output) if value.name == name)
    element = graph.output[place].type.tensor_type.elem_type
    scores = fresh_names(graph).fresh(f"{name}.raw")
    makers = [node for node in graph.node if name in node.output]
    is_probability = any(n.op_type == "Softmax" and n.domain in STANDARD_DOMAINS for n in makers)
    rename(graph, name, scores)
    if kind != "argmax" and not is_probability:
        made = name if kind == "softmax" else fresh_names(graph).fresh(f"{name}.probabilities")
        graph.node.append(helper.make_node("Softmax", [scores], [made], axis=CLASSES_AXIS))
        scores = made
    if kind == "softmax":
        if is_probability:
            rename(graph, scores, name)
        return
    rest = [*shape[:1], *shape[2:]]
    if kind == "argmax":
        graph.node.append(
            helper.make_node("ArgMax", [scores], [name], axis=CLASSES_AXIS, keepdims=0)
        )
        outputs = [(name, TensorProto.INT64, rest)]
    else:
        count = min(BEST, shape[CLASSES_AXIS])
        best = [shape[0], count, *shape[2:]]
        names = fresh_names(graph)
        values, size = names.fresh(f"{name}.scores"), names.fresh(f"{name}.count")
        graph.initializer.append(numpy_helper.from_array(np.array([count], np.int64), size))
        graph.node.append(
            helper.make_node("TopK", [scores, size], [values, name], axis=CLASSES_AXIS)
        )
        outputs = [(name, TensorProto.INT64, best), (values, element, best)]
    replace_output(graph, place, outputs)


def find_output(outputs: Sequence[TensorSpec], name: str, option: str) -> TensorSpec:
    """Return the output of a certain name; there being none is a `UsageError`."""
    specs = {spec.name: spec for spec in outputs}
    if name not in specs:
        hint = did_you_mean(name, specs) or f"; the outputs are {', '.join(specs)}"
        raise UsageError(f"{option} names an output '{name}' the model does not have{hint}")
    return specs[name]


def replace_output(
    graph: onnx.GraphProto, place: int, outputs: Sequence[tuple[str, int, Sequence[int | str]]]
) -> None:
    """Replace an output by others, each given as (name, element type, shape)."""
    kept = list(graph.output)
    kept[place : place + 1] = [helper.make_tensor_value_info(*output) for output in outputs]
    del graph.output[:]
    graph.output.extend(kept)


MAX_BOXES: Final = 300  # the most boxes of a class; ultralytics keeps as many of a picture

COARSEST: Final = 32
"""Pixels of a cell of the coarsest grid that all YOLOs have; each cell has at least one box."""

_AXES_ARE_INPUTS: Final = 18
_LAST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Head:
    """The output of a YOLO's head: (1, 4 + classes, boxes); (1, boxes, 5 + classes) of YOLOv5."""

    spec: TensorSpec
    is_v8: bool

    @property
    def boxes(self) -> int:
        return self.spec.shape[2 if self.is_v8 else 1]

    @property
    def classes(self) -> int:
        return self.spec.shape[1] - 4 if self.is_v8 else self.spec.shape[2] - 5

    def __str__(self) -> str:
        layout = "YOLOv8's to v11's, 4+C x N" if self.is_v8 else "YOLOv5's, N x 5+C"
        return (
            f"{self.spec.name} {'x'.join(map(str, self.spec.shape))} is read as {layout}: "
            f"{self.boxes} boxes of {self.classes} classes"
        )


def find_head(outputs: Sequence[TensorSpec], size: tuple[int, int] | None) -> Head:
    """Return the YOLO head of a model for pictures of ``size``, by its shape, or `UsageError`."""
    found = [head for spec in outputs if (head := _head(spec, size)) is not None]
    texts = ", ".join(f"{spec.name} {'x'.join(map(str, spec.shape))}" for spec in outputs)
    if len(found) != 1:
        what = "more than one output looks like" if found else "no output is"
        raise UsageError(
            f"--nms yolo: {what} a YOLO's head, 1x(4+C)xN of version 8 to 11 or 1xNx(5+C) of "
            f"version 5, for one picture; the outputs are {texts}"
        )
    if any(len(spec.shape) == 4 and found[0].is_v8 for spec in outputs):
        raise UsageError(
            f"--nms yolo: the outputs are {texts}: a head with masks, which --nms does not know"
        )
    return found[0]


def _head(spec: TensorSpec, size: tuple[int, int] | None) -> Head | None:
    shape = spec.shape
    if len(shape) != 3 or shape[0] != 1 or not spec.dtype.startswith("float"):
        return None
    _, first, last = shape
    is_v8 = first < last
    boxes, numbers = (last, first) if is_v8 else (first, last)
    least = 0 if size is None else (size[0] // COARSEST) * (size[1] // COARSEST)
    if first == last or numbers < (5 if is_v8 else 6) or boxes < least:
        return None
    # Boxes of YOLOv10 are suppressed already: they have corners, a score and a class.
    return None if not is_v8 and (boxes, numbers) == (MAX_BOXES, 6) else Head(spec, is_v8)


def suppress(
    model: onnx.ModelProto, head: Head, limits: Suppression, geometry: Geometry | None
) -> None:
    """Replace a head by the outputs ``boxes``, ``scores`` and ``classes``, in place.

    The opset is 13 or newer. Each row is a box: its corners ``(x1, y1, x2, y2)`` (float32, in
    pixels of the picture if there is a geometry, else of the model's input), its score (float32)
    and its class (int64). Rows are ordered by class, and then by falling score.
    """
    graph = model.graph
    place = next(i for i, value in enumerate(graph.output) if value.name == head.spec.name)
    nodes = NodeWriter(fresh_names(graph).prefix(f"{head.spec.name}.boxes"))
    data = head.spec.name
    if head.spec.dtype != "float32":
        data = nodes.op("Cast", data, to=TensorProto.FLOAT)
    corners, scores = _columns(nodes, head, data)
    axes = nodes.const([1])
    if opset_of(model) < _AXES_ARE_INPUTS:
        best = nodes.op("ReduceMax", scores, axes=[1], keepdims=1)
    else:
        best = nodes.op("ReduceMax", scores, axes, keepdims=1)
    own = nodes.op("Equal", scores, best)
    masked = nodes.op("Where", own, scores, nodes.const(np.float32(-1)))
    selected = nodes.op(
        "NonMaxSuppression",
        corners,
        masked,
        nodes.const([min(MAX_BOXES, head.boxes)]),
        nodes.const(np.array([limits.overlap], np.float32)),
        nodes.const(np.array([limits.score], np.float32)),
        center_point_box=1,
    )
    kinds, numbers = (
        nodes.op("Gather", selected, nodes.const(np.int64(column)), axis=1) for column in (1, 2)
    )
    flat = nodes.op("Reshape", scores, nodes.const([-1]))
    places = nodes.op("Mul", kinds, nodes.const(np.int64(head.boxes)))
    kept = nodes.op("Gather", flat, nodes.op("Add", places, numbers), axis=0)
    rows = nodes.op("Reshape", corners, nodes.const([-1, 4]))
    chosen = _placed(nodes, nodes.op("Gather", rows, numbers, axis=0), geometry)
    graph.initializer.extend(nodes.tensors)
    graph.node.extend(nodes.nodes)
    outputs = []
    for value, name, kind, shape in (
        (chosen, "boxes", TensorProto.FLOAT, ("rows", 4)),
        (kept, "scores", TensorProto.FLOAT, ("rows",)),
        (kinds, "classes", TensorProto.INT64, ("rows",)),
    ):
        public = fresh_names(graph).fresh(name)
        graph.node.append(helper.make_node("Identity", [value], [public]))
        outputs.append((public, kind, shape))
    replace_output(graph, place, outputs)


def _columns(nodes: NodeWriter, head: Head, data: str) -> tuple[str, str]:
    """Return centres and sizes (1, boxes, 4), and scores (1, classes, boxes)."""
    if head.is_v8:
        corners = nodes.op("Transpose", _part(nodes, data, 0, 4, 1), perm=(0, 2, 1))
        return corners, _part(nodes, data, 4, _LAST, 1)
    scores = nodes.op("Mul", _part(nodes, data, 5, _LAST, 2), _part(nodes, data, 4, 5, 2))
    return _part(nodes, data, 0, 4, 2), nodes.op("Transpose", scores, perm=(0, 2, 1))


def _placed(nodes: NodeWriter, rows: str, geometry: Geometry | None) -> str:
    """Return the corners, within the picture, of boxes given by centre and size."""
    middle, sides = _part(nodes, rows, 0, 2, 1), _part(nodes, rows, 2, 4, 1)
    half = nodes.op("Mul", sides, nodes.const(np.float32(0.5)))
    ends = [nodes.op(op_type, middle, half) for op_type in ("Sub", "Add")]
    corners = nodes.op("Concat", *ends, axis=1)
    if geometry is None:
        return corners
    both = (geometry.columns, geometry.rows) * 2
    offset, scale, most = (
        nodes.const(np.array(values, np.float32))
        for values in (
            [side.offset for side in both],
            [side.scale for side in both],
            [side.extent for side in both],
        )
    )
    moved = nodes.op("Mul", nodes.op("Add", corners, offset), scale)
    return nodes.op("Min", nodes.op("Max", moved, nodes.const(np.float32(0))), most)


def _part(nodes: NodeWriter, data: str, start: int, end: int, axis: int) -> str:
    return nodes.op("Slice", data, *(nodes.const([each]) for each in (start, end, axis)))
