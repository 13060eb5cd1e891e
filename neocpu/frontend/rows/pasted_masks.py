"""Replace the loop that pastes each detection's mask into the image by matrix products.

torchvision's Mask R-CNN resizes a mask to the size of its box, which only the data decide, and no
static shape bounds. Rows and columns are interpolated separately: the image is ``rows @ mask @
columns``, with weights that are zero outside the box.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.rows.row_loop import Array, RowLoop

# The heights of masks differ from their widths, so that a mix-up is found.
_MASK = (6, 5)
_TOLERANCE = 1e-4


def write_pasted_masks(nodes: NodeWriter, loop: RowLoop, results: Sequence[str]) -> bool:
    """Write nodes that paste masks ``(n, 1, height, width)`` at integer boxes ``(n, 4)``.

    If the loop computes something else, nothing is written, and the result is False.
    """
    image = _image_of(loop) if len(loop.reads) == 2 and len(results) == 1 else None
    if image is None or loop.extents or loop.counted != loop.reads[0]:
        return False
    _write_products(nodes, loop.reads, image, results[0])
    return True


def _image_of(loop: RowLoop) -> tuple[int, int] | None:
    """Return the image's height and width if the body pastes masks into it, else None."""
    rng = np.random.default_rng(0)

    def step(mask: Array, box: Sequence[int]) -> Array:
        (made,) = loop.step([mask[None, None], np.array([box])])
        return made

    try:
        mask = rng.uniform(size=_MASK).astype(np.float32)
        _, height, width = step(mask, (0, 0, 1, 1)).shape
        for box in _boxes(height, width):
            mask = rng.uniform(size=_MASK).astype(np.float32)
            found = step(mask, box)
            if found.shape != (1, height, width):
                return None
            if np.abs(found[0] - pasted(mask, box, height, width)).max() > _TOLERANCE:
                return None
    except Exception:  # a body that does something else may raise any error
        return None
    return height, width


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


def pasted(mask: Array, box: Sequence[int], height: int, width: int) -> Array:
    """Return an image with a mask in a box, which may extend beyond the image."""
    x0, y0, x1, y1 = box
    rows = _weights(height, mask.shape[0], y0, y1)
    columns = _weights(width, mask.shape[1], x0, x1)
    image: Array = rows @ mask @ columns.T
    return image


def _weights(extent: int, pixels: int, start: int, end: int) -> Array:
    """Return the weight of each pixel of a mask in each pixel of an image: (extent, pixels)."""
    place = np.arange(extent)
    at = (place - start + 0.5) * (pixels / max(end - start + 1, 1)) - 0.5
    near = 1 - np.abs(np.clip(at, 0, pixels - 1)[:, None] - np.arange(pixels))
    inside = (place >= start) & (place <= end)
    return np.asarray(np.maximum(near, 0) * inside[:, None], np.float32)


def _write_products(
    nodes: NodeWriter, reads: Sequence[str], image: tuple[int, int], result: str
) -> None:
    """Write nodes that compute `pasted` for all masks."""
    masks, boxes = reads
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
    nodes.op("MatMul", nodes.op("MatMul", rows, flat), across, output=result)


def _corner(nodes: NodeWriter, boxes: str, place: int) -> str:
    """Return one coordinate of all boxes as floats, ``(n, 1, 1)``."""
    column = nodes.op("Gather", boxes, nodes.const(place), axis=1)
    spread = nodes.op("Reshape", column, nodes.const([-1, 1, 1]))
    return nodes.op("Cast", spread, to=TensorProto.FLOAT)


def _side(nodes: NodeWriter, extent: int, pixels: str, first: str, last: str) -> str:
    """Return `_weights` for all boxes; ``first`` and ``last`` pixels are ``(n, 1, 1)``."""
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
