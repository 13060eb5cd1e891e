"""Trained models besides EfficientNet, their pictures, and the answers in their outputs."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests.precision.lines import ROWS, Writer

Images = NDArray[np.float32]
Outputs = Sequence[NDArray[Any]]
Answer = Callable[[Outputs], Any]

FACE: Final = Path("../shared/models/face/version-RFB-320.onnx")


@dataclass(frozen=True, slots=True)
class Task:
    """A trained model, its inputs ``(N, C, H, W)``, read one at a time, and the right answers.

    ``answer`` turns the outputs of one run into the answer. ``same`` and ``part`` return the
    agreement of two answers, or of their parts, from 0 to 1.
    """

    name: str
    model: onnx.ModelProto
    images: Images
    truth: Sequence[Any] | None
    answer: Answer
    same: Callable[[Any, Any], float] = lambda one, other: float(one == other)
    part: Callable[[Any, Any], float] | None = None


def _fixed(path: Path, shape: Sequence[int]) -> onnx.ModelProto:
    """Return a model whose only input has this shape."""
    model = onnx.load(path)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for dim, extent in zip(dims, shape, strict=True):
        dim.dim_value = extent
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    return onnx.shape_inference.infer_shapes(model)


def _scaled(image: Image.Image, width: int) -> Images:
    """Return a line as PP-OCR's models read it, zeros on its right."""
    pixels = np.asarray(image, np.float32)[..., ::-1].transpose(2, 0, 1)
    scaled = ((pixels / 255 - 0.5) / 0.5).astype(np.float32)
    return np.pad(scaled, ((0, 0), (0, 0), (0, width - image.width)))


def small_print(folder: Path) -> Task:
    """Lines of 16 to 48 pixel rows, which float32 misreads too."""
    return text_recognition(folder, rows=16)


def text_recognition(folder: Path, count: int = 280, rows: int = ROWS) -> Task:
    """PP-OCRv4's recognition of lines, as strings."""
    model = _fixed(next(folder.rglob("ch_PP-OCRv4_rec_infer.onnx")), (1, 3, 48, 320))
    known = next(each.value for each in model.metadata_props if each.key == "character")
    letters = ["", *known.split("\n"), " "]
    writer = Writer.of(folder, 1, rows)
    lines = [writer.line(320, 48) for _ in range(count)]

    def decoded(outputs: Outputs) -> str:
        best = outputs[0][0].argmax(-1)
        first = np.append(True, best[1:] != best[:-1])
        return "".join(letters[int(each)] for each in best[first & (best > 0)]).strip()

    images = np.stack([_scaled(image, 320) for image, _ in lines])
    name = "text recognition" if rows == ROWS else "small print"
    return Task(name, model, images, [text for _, text in lines], decoded,
                part=letters_alike)  # fmt: skip


def letters_alike(one: str, other: str) -> float:
    """Return the share of letters that need no edit, of the longer string."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, against in enumerate(other, 1):
            changed = before + (letter != against)
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, changed)
    return 1 - row[-1] / max(len(one), len(other), 1)


def text_direction(folder: Path, count: int = 280) -> Task:
    """PP-OCR's decision on the orientation of a line."""
    model = _fixed(next(folder.rglob("ch_ppocr_mobile_v2.0_cls_infer.onnx")), (1, 3, 48, 192))
    writer = Writer.of(folder, 2)
    turned = writer.rng.integers(0, 2, count)
    lines = [writer.line(192, 48)[0].rotate(180 * int(turn)) for turn in turned]
    return Task("text direction", model, np.stack([_scaled(each, 192) for each in lines]),
                turned.tolist(), lambda outputs: int(outputs[0][0].argmax()))  # fmt: skip


def text_detection(folder: Path, count: int = 80) -> Task:
    """PP-OCRv4's boxes around lines of text, by its own post-processing."""
    model = _fixed(next(folder.rglob("ch_PP-OCRv4_det_infer.onnx")), (1, 3, 320, 320))
    writer = Writer.of(folder, 3)
    rng = writer.rng
    pages = []
    for _ in range(count):
        page = Image.new("RGB", (320, 320), tuple(map(int, rng.integers(190, 256, 3))))
        for y in range(int(rng.integers(4, 30)), 270, int(rng.integers(45, 90))):
            line, _ = writer.line(300, int(rng.integers(20, 42)))
            page.paste(line, (int(rng.integers(0, 20)), y))
        pages.append(_imagenet(page))
    return Task("text detection", model, np.stack(pages), None, lambda outputs: outputs[0][0, 0],
                lambda one, other: boxes_alike(text_boxes(one), text_boxes(other)),
                pixels_alike)  # fmt: skip


def text_boxes(scores: NDArray[Any]) -> list[tuple[int, ...]]:
    """Return upright boxes around scores above 0.3 whose mean is above 0.6."""
    from scipy import ndimage

    parts, _ = ndimage.label(scores > 0.3, np.ones((3, 3)))
    found = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(parts), 1):
        tall, wide = rows.stop - rows.start, columns.stop - columns.start
        inside = scores[rows, columns][parts[rows, columns] == number]
        if min(tall, wide) > 3 and inside.mean() > 0.6:
            found.append((columns.start, rows.start, columns.stop, rows.stop))
    return found


def boxes_alike(some: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the harmonic mean of precision and recall, of boxes that share half their union."""
    if not some and not others:
        return 1.0
    overlaps = [_overlap(one, other) > 0.5 for one in some for other in others]
    # No box overlaps two disjoint others by more than half.
    return 2 * sum(overlaps) / (len(some) + len(others))


def pixels_alike(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the intersection of two masks of text over their union."""
    first, second = one > 0.3, other > 0.3
    either = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / either if either else 1.0


def _overlap(one: Any, other: Any) -> float:
    """Return the intersection of two boxes over their union."""
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    shared = float(np.prod(np.maximum(np.subtract(high, low), 0)))
    sizes = [float(np.prod(np.subtract(box[2:], box[:2]))) for box in (one, other)]
    return shared / (sum(sizes) - shared)


def _imagenet(image: Image.Image) -> Images:
    pixels = np.asarray(image, np.float32)[..., ::-1] / 255
    normal = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return normal.transpose(2, 0, 1).astype(np.float32)


def faces(folder: Path, count: int = 100) -> Task:
    """The face detector on views of photographs, judged by the place of its best boxes."""
    rng = np.random.default_rng(4)
    photographs = [Image.open(next(folder.rglob("astronaut.png"))).convert("RGB")]
    views = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        side = int(rng.integers(220, 512))
        left, top = int(rng.integers(0, 512 - side + 1)), int(rng.integers(0, 60))
        view = photograph.crop((left, top, left + side, min(512, top + side * 3 // 4)))
        pixels = np.asarray(view.resize((320, 240)), np.float32) * rng.uniform(0.6, 1.2)
        pixels = pixels[:, ::-1] if rng.integers(2) else pixels
        pixels = np.clip(pixels + rng.normal(0, 4, pixels.shape), 0, 255)
        views.append(((pixels - 127) / 128).transpose(2, 0, 1).astype(np.float32))

    def best(outputs: Outputs) -> tuple[bool, Any]:
        scores, boxes = sorted(outputs, key=lambda each: each.shape[-1])
        at = int(scores[0, :, 1].argmax())
        return bool(scores[0, at, 1] > 0.7), boxes[0, at]

    return Task("faces", onnx.load(FACE), np.stack(views), None, best, _same_face)


def _same_face(one: tuple[bool, Any], other: tuple[bool, Any]) -> float:
    if not one[0] and not other[0]:
        return 1.0
    return float(one[0] == other[0] and _overlap(one[1], other[1]) > 0.7)


def digits(folder: Path) -> Task:
    import torch

    packed = next(folder.rglob("mnist_5k.csv.gz")).read_bytes()
    rows = np.array(list(csv.reader(io.StringIO(gzip.decompress(packed).decode()))), np.float32)
    rows = np.random.default_rng(5).permutation(rows)
    images, labels = rows[:, :-1].reshape(-1, 1, 28, 28) / 255, rows[:, -1].astype(np.int64)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(32 * 49, 10)),
    )
    seen = torch.from_numpy(images[:4000]), torch.from_numpy(labels[:4000])
    descent = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(6):
        for batch in torch.randperm(4000).split(50):
            loss = torch.nn.functional.cross_entropy(network(seen[0][batch]), seen[1][batch])
            descent.zero_grad()
            loss.backward()
            descent.step()
    arrays = {name.replace(".", "_"): each.numpy() for name, each in network.state_dict().items()}
    return Task("digits", _digits_model(arrays), images[4000:], labels[4000:].tolist(),
                lambda outputs: int(outputs[0][0].argmax()))  # fmt: skip


def _digits_model(arrays: dict[str, Any]) -> onnx.ModelProto:
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "0_weight", "0_bias"], ["a"], "conv_a", **same),
        helper.make_node("Relu", ["a"], ["b"], "relu_a"),
        helper.make_node("MaxPool", ["b"], ["c"], "pool_a", **pool),
        helper.make_node("Conv", ["c", "3_weight", "3_bias"], ["d"], "conv_b", **same),
        helper.make_node("Relu", ["d"], ["e"], "relu_b"),
        helper.make_node("MaxPool", ["e"], ["f"], "pool_b", **pool),
        helper.make_node("Flatten", ["f"], ["g"], "flatten"),
        helper.make_node("Gemm", ["g", "7_weight", "7_bias"], ["y"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


TASKS: Final[dict[str, Callable[[Path], Task]]] = {
    "recognition": text_recognition,
    "small-print": small_print,
    "direction": text_direction,
    "detection": text_detection,
    "faces": faces,
    "digits": digits,
}
"""Functions that make each task from the folder with the unpacked packages."""
