"""Replace the loop that finds each detection's keypoints by one operator on all detections.

torchvision's Keypoint R-CNN resizes the heat maps of a detection to the size of its box, which only
the data decide, and takes the position of each map's maximum. `RESIZED_PEAKS` computes the same
without storing resized maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import TensorProto

from neocpu.frontend.numpy_operators.cubic_kernel import cubic_kernel
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.rows.row_graph import DOMAIN
from neocpu.frontend.rows.row_loop import Array, RowLoop
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import Rule, Step

RESIZED_PEAKS: Final = "ResizedPeaks"
"""An operator on maps, heights, widths and a number of rows. Its results are the maxima of the
resized maps, ``(n, maps)``, and their rows and columns, ``(2, n, maps)``."""

_AXES_ARE_INPUTS: Final = 13
_CUBIC: Final = -0.75
_TOLERANCE: Final = 1e-4
# The number of keypoints and a map's height and width: three different numbers.
_MAPS: Final = (3, 6, 5)
_SIDES: Final = ((7.0, 9.0), (1.0, 1.0), (12.25, 3.5), (2.75, 10.0))


def write_keypoints(nodes: NodeWriter, loop: RowLoop, results: Sequence[str]) -> bool:
    """Write nodes that find keypoints ``(n, 3, maps)`` and their scores ``(n, maps)``.

    The loop reads maps ``(n, maps, h, w)`` and vectors: widths and heights rounded up, widths and
    heights, and the distances of boxes from the left and from the top. If the loop computes
    something else, nothing is written, and the result is False.
    """
    fits = len(loop.reads) == 7 and len(results) == 2 and opset_of(loop.model) >= _AXES_ARE_INPUTS
    if not fits or not _finds_keypoints(loop):
        return False
    maps, across, down, widths, heights, lefts, tops = loop.reads
    places = f"{nodes.prefix}places{len(nodes.nodes)}"
    scores = nodes.op(
        RESIZED_PEAKS,
        maps,
        down,
        across,
        loop.count,
        output=results[1],
        others=[places],
        domain=DOMAIN,
        cubic=_CUBIC,
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


def _finds_keypoints(loop: RowLoop) -> bool:
    rng = np.random.default_rng(0)
    try:
        for width, height in _SIDES:
            maps = rng.normal(size=_MAPS).astype(np.float32)
            left, top = rng.uniform(0, 20, 2)
            numbers = np.ceil(width), np.ceil(height), width, height, left, top
            vectors = [np.array([number], np.float32) for number in numbers]
            places, scores = loop.step([maps[None], *vectors])
            resized = _weights(int(numbers[1]), maps.shape[1]) @ maps
            resized = resized @ _weights(int(numbers[0]), maps.shape[2]).T
            y, x = np.divmod(resized.reshape(len(maps), -1).argmax(1), resized.shape[2])
            points = [(x + 0.5) * width / numbers[0] + left, (y + 0.5) * height / numbers[1] + top]
            expected = np.array([[*points, np.ones(len(maps))]])
            if places.shape != expected.shape or np.abs(places - expected).max() > _TOLERANCE:
                return False
            if np.abs(scores - resized.max((1, 2))).max() > _TOLERANCE:
                return False
    except Exception:  # a body that does something else may raise any error
        return False
    return True


def _weights(extent: int, pixels: int) -> Array:
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
