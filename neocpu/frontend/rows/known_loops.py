"""Replace loops over detections whose steps make tensors of sizes that only the data decide.

torchvision's Mask R-CNN resizes a mask to the size of its box, and pastes it into the image. Rows
and columns are interpolated separately: the image is ``rows @ mask @ columns``, with weights that
are zero outside the box.

Its Keypoint R-CNN resizes the heat maps of a detection to the size of its box, and takes the
position of each map's maximum. `RESIZED_PEAKS` computes the same without storing resized maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from neocpu.frontend.numpy_operators.cubic_kernel import cubic_kernel
from neocpu.frontend.onnx_graph.names import fresh_names
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.rows.row_graph import DOMAIN, Array, Rule, Step
from neocpu.frontend.rows.row_loop import RowLoop, row_loops
from neocpu.frontend.rows.row_value import RowError, Value

RESIZED_PEAKS: Final = "ResizedPeaks"
"""An operator on maps, heights, widths and a number of rows. Its results are the maxima of the
resized maps, ``(n, maps)``, and their rows and columns, ``(2, n, maps)``."""

_AXES_ARE_INPUTS: Final = 13
_CUBIC: Final = -0.75
_TOLERANCE: Final = 1e-4
# The number of keypoints, a map's height and its width differ, so that a mix-up is found.
_MAPS: Final = (3, 6, 5)
_SIDES: Final = ((7.0, 9.0), (1.0, 1.0), (12.25, 3.5), (2.75, 10.0))

_Cases: TypeAlias = Iterable[tuple[Sequence[Array], Sequence[Array]]]
"""The rows that a step reads, and those that it should make."""


def replace_loops(model: onnx.ModelProto) -> None:
    """Replace loops that paste masks or find keypoints, in place, from opset 11 on."""
    loops = dict(row_loops(model))
    if not loops:
        return
    writer = NodeWriter(fresh_names(model.graph).prefix("loop_"))
    for index, node in enumerate(model.graph.node):
        loop = loops.get(index)
        if loop is None or not (
            _write_masks(writer, loop, node.output) or _write_keypoints(writer, loop, node.output)
        ):
            writer.nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in writer.nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(writer.tensors)
    if any(node.domain == DOMAIN for node in kept):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _computes(loop: RowLoop, cases: _Cases) -> bool:
    """Return whether the steps of a loop make these rows."""
    try:
        return all(
            found.shape == wanted.shape and np.abs(found - wanted).max() <= _TOLERANCE
            for rows, results in cases
            for found, wanted in zip(loop.step(rows), results, strict=True)
        )
    except Exception:  # a body that does something else may raise any error
        return False


def _write_masks(nodes: NodeWriter, loop: RowLoop, results: Sequence[str]) -> bool:
    """Write nodes that paste masks ``(n, 1, h, w)`` at boxes ``(n, 4)``; False for other loops."""
    image: list[int] = []
    fits = len(loop.reads) == 2 and len(results) == 1 and not loop.extents
    if not fits or loop.counted != loop.reads[0] or not _computes(loop, _masks(loop, image)):
        return False
    masks, boxes = loop.reads
    sizes = nodes.op("Shape", masks)
    rows, columns = (
        _side(
            nodes,
            image[axis],
            nodes.op("Gather", sizes, nodes.const(2 + axis), axis=0),
            *(_corner(nodes, boxes, corner) for corner in (1 - axis, 3 - axis)),
        )
        for axis in (0, 1)
    )
    flat = nodes.op("Gather", masks, nodes.const(0), axis=1)
    across = nodes.op("Transpose", columns, perm=[0, 2, 1])
    nodes.op("MatMul", nodes.op("MatMul", rows, flat), across, output=results[0])
    return True


def _masks(loop: RowLoop, image: list[int]) -> Iterator[tuple[list[Array], list[Array]]]:
    """Yield masks in boxes, and the images of them; ``image`` gets the size of an image."""
    rng = np.random.default_rng(0)
    mask = rng.uniform(size=(1, 1, *_MAPS[1:])).astype(np.float32)
    image += loop.step([mask, np.array([(0, 0, 1, 1)])])[0].shape[1:]
    height, width = image
    for box in _boxes(height, width):
        mask = rng.uniform(size=_MAPS[1:]).astype(np.float32)
        (x0, y0, x1, y1), (rows, columns) = box, mask.shape
        across = _near(width, columns, x0, x1)
        pasted = _near(height, rows, y0, y1) @ mask @ across.T
        yield [mask[None, None], np.array([box])], [pasted[None]]


def _boxes(height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return test boxes: some within an image, one of a pixel, and some beyond each side."""
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


def _near(extent: int, pixels: int, start: int, end: int) -> Array:
    """Return the weight of each pixel of a mask in each pixel of an image: (extent, pixels)."""
    place = np.arange(extent)
    at = (place - start + 0.5) * (pixels / max(end - start + 1, 1)) - 0.5
    near = 1 - np.abs(np.clip(at, 0, pixels - 1)[:, None] - np.arange(pixels))
    inside = (place >= start) & (place <= end)
    return np.asarray(np.maximum(near, 0) * inside[:, None], np.float32)


def _corner(nodes: NodeWriter, boxes: str, place: int) -> str:
    """Return one coordinate of all boxes as floats, ``(n, 1, 1)``."""
    column = nodes.op("Gather", boxes, nodes.const(place), axis=1)
    spread = nodes.op("Reshape", column, nodes.const([-1, 1, 1]))
    return nodes.op("Cast", spread, to=TensorProto.FLOAT)


def _side(nodes: NodeWriter, extent: int, pixels: str, first: str, last: str) -> str:
    """Return `_near` for all boxes; ``first`` and ``last`` pixels are ``(n, 1, 1)``."""
    zero, half, one = (nodes.const(np.float32(number)) for number in (0, 0.5, 1))
    place = nodes.const(np.arange(extent, dtype=np.float32).reshape(1, -1, 1))
    number = nodes.op("Cast", pixels, to=TensorProto.FLOAT)
    length = nodes.op("Max", nodes.op("Add", nodes.op("Sub", last, first), one), one)
    scale = nodes.op("Div", number, length)
    distance = nodes.op("Add", nodes.op("Sub", place, first), half)
    at = nodes.op("Sub", nodes.op("Mul", distance, scale), half)
    within = nodes.op("Clip", at, zero, nodes.op("Sub", number, one))
    counted = nodes.op("Range", nodes.const(0), pixels, nodes.const(1))
    off = nodes.op("Abs", nodes.op("Sub", within, nodes.op("Cast", counted, to=TensorProto.FLOAT)))
    near = nodes.op("Relu", nodes.op("Sub", one, off))
    outside = nodes.op("Or", nodes.op("Less", place, first), nodes.op("Greater", place, last))
    return nodes.op("Where", outside, zero, near)


def _write_keypoints(nodes: NodeWriter, loop: RowLoop, results: Sequence[str]) -> bool:
    """Write nodes that find keypoints ``(n, 3, maps)`` and their scores ``(n, maps)``.

    The loop reads maps ``(n, maps, h, w)`` and vectors: widths and heights rounded up, widths and
    heights, and the distances of boxes from the left and from the top. The result is False, and
    nothing is written, if the loop computes something else.
    """
    fits = len(loop.reads) == 7 and len(results) == 2 and opset_of(loop.model) >= _AXES_ARE_INPUTS
    if not fits or not _computes(loop, _keypoints()):
        return False
    maps, across, down, widths, heights, lefts, tops = loop.reads
    places = f"{nodes.prefix}places{len(nodes.nodes)}"
    inputs, others = (maps, down, across, loop.count), [places]
    scores = nodes.op(
        RESIZED_PEAKS, *inputs, output=results[1], others=others, domain=DOMAIN, cubic=_CUBIC
    )
    found = []
    for axis, side, whole, start in ((1, widths, across, lefts), (0, heights, down, tops)):
        place = nodes.op("Gather", places, nodes.const(axis), axis=0)
        centre = nodes.op("Cast", place, to=TensorProto.FLOAT)
        centre = nodes.op("Add", centre, nodes.const(np.float32(0.5)))
        scale, start = (
            nodes.op("Unsqueeze", each, nodes.const([1]))
            for each in (nodes.op("Div", side, whole), start)
        )
        found.append(nodes.op("Add", nodes.op("Mul", centre, scale), start))
    zeros = nodes.op("Sub", scores, scores)
    found.append(nodes.op("Add", zeros, nodes.const(np.float32(1))))
    rows = [nodes.op("Unsqueeze", each, nodes.const([1])) for each in found]
    nodes.op("Concat", *rows, axis=1, output=results[0])
    return True


def _keypoints() -> Iterator[tuple[list[Array], list[Array]]]:
    rng = np.random.default_rng(0)
    for width, height in _SIDES:
        maps = rng.normal(size=_MAPS).astype(np.float32)
        left, top = rng.uniform(0, 20, 2)
        numbers = np.ceil(width), np.ceil(height), width, height, left, top
        resized = _cubic(int(numbers[1]), maps.shape[1]) @ maps
        resized = resized @ _cubic(int(numbers[0]), maps.shape[2]).T
        y, x = np.divmod(resized.reshape(len(maps), -1).argmax(1), resized.shape[2])
        points = [(x + 0.5) * width / numbers[0] + left, (y + 0.5) * height / numbers[1] + top]
        wanted = [np.array([[*points, np.ones(len(maps))]]), resized.max((1, 2))[None]]
        yield [maps[None], *(np.array([number], np.float32) for number in numbers)], wanted


def _cubic(extent: int, pixels: int) -> Array:
    """Return the weight of each pixel in each pixel of a resized side: (extent, pixels)."""
    at = (np.arange(extent) + 0.5) * pixels / extent - 0.5
    low = np.floor(at).astype(int)
    weights = np.zeros((extent, pixels))
    for tap in range(-1, 3):
        d = np.abs(at - low - tap)
        places = np.clip(low + tap, 0, pixels - 1)
        np.add.at(weights, (np.arange(extent), places), cubic_kernel(d, _CUBIC))
    return weights


def resized_peaks(step: Step) -> Sequence[Value]:
    """`RESIZED_PEAKS`; its number of rows must be that of the valid ones."""
    maps, heights, widths, number = (step.operand(i) for i in range(4))
    rows = maps.extents[0]
    if maps.axis not in (None, 0) or maps.rank != 4:
        raise RowError("its maps lie along another axis than the first")
    if number.contents != (rows,) or any(side.extents != (rows,) for side in (heights, widths)):
        raise RowError("it does not run once for each of the selected rows")
    found, places = step.node.output
    shape = maps.shape[:2]
    outputs = ((found, maps.kind, shape), (places, TensorProto.INT64, (2, *shape)))
    read = [maps, heights, widths, step.graph.counted(rows)]
    values, where = step.graph.emit_ours(RESIZED_PEAKS, read, outputs, step.attributes)
    return [values.with_rows(0, rows), where.with_rows(1, rows)]


RULES: dict[str, Rule] = {RESIZED_PEAKS: resized_peaks}
