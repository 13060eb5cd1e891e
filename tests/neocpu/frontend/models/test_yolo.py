"""YOLOv3-tiny against Darknet's figures, and its decoding against a plain one."""

import numpy as np
import onnx
import pytest
from network_measures import multiply_accumulates, parameters, random_image, run, shapes

from neocpu.frontend.models import MODELS, build

HEADS = {32: "/model/20/m/1/Conv_output_0", 16: "/model/20/m/0/Conv_output_0"}
ANCHORS = {32: [(81, 82), (135, 169), (344, 319)], 16: [(10, 14), (23, 27), (37, 58)]}


@pytest.fixture(scope="module")
def yolo():
    return build("yolov3_tiny")


def _decode(head, step):
    """Decode boxes one by one, by section 2.1 of the YOLOv3 paper."""
    _, _, height, width = head.shape
    boxes = []
    for anchor, (anchor_width, anchor_height) in enumerate(ANCHORS[step]):
        for row in range(height):
            for column in range(width):
                t = head[:, 85 * anchor : 85 * (anchor + 1), row, column].astype(np.float64)
                probabilities = 1 / (1 + np.exp(-t))
                x = (probabilities[:, 0] + column) * step
                y = (probabilities[:, 1] + row) * step
                w = anchor_width * np.exp(t[:, 2])
                h = anchor_height * np.exp(t[:, 3])
                boxes.append(np.column_stack([x, y, w, h, probabilities[:, 4:]]))
    return np.stack(boxes, axis=1)


def test_counts_are_darknets(yolo):
    # yolov3-tiny.weights holds 8 858 734 numbers, two for each of 3184 normalised channels being
    # statistics. Darknet counts 5.56 billion operations, and each multiplication as two.
    assert parameters(yolo) == 8_858_734 - 2 * 3184 == MODELS["yolov3_tiny"].parameters
    gmacs = multiply_accumulates(yolo) / 1e9
    assert gmacs == pytest.approx(5.56 / 2, abs=0.005)
    assert gmacs == pytest.approx(MODELS["yolov3_tiny"].gmacs, abs=0.0005)


def test_has_three_boxes_for_each_cell_of_both_grids(yolo):
    assert shapes(yolo)["output"] == (1, 3 * (13**2 + 26**2), 85)


@pytest.mark.parametrize("image", [(64, 96), (70, 101)])
def test_boxes_are_decoded_as_in_the_paper(image):
    model = build("yolov3_tiny", batch=2, image=image)
    values = run(model, random_image(2, 3, *image), *HEADS.values())
    expected = [_decode(values[name], step) for step, name in HEADS.items()]
    for step, name in HEADS.items():
        assert values[name].shape[2:] == tuple(-(-extent // step) for extent in image)
    np.testing.assert_allclose(values["output"], np.concatenate(expected, 1), rtol=1e-5, atol=1e-5)


def test_boxes_are_of_sensible_sizes():
    model = build("yolov3_tiny", image=(128, 128))
    depths = [n.output[0] for n in model.graph.node if n.op_type == "Conv"]
    values = run(model, random_image(1, 3, 128, 128), *depths)
    assert all(0.2 < values[depth].std() < 20 for depth in depths)
    assert 10 < np.median(values["output"][..., 2:4]) < 500
    assert 0.1 < values["output"][..., 4:].std() < 0.4


def test_coarse_features_are_pooled_towards_the_bottom_right(yolo):
    """Darknet pads its pool of stride 1 at the end alone."""
    pool = next(n for n in yolo.graph.node if n.name == "/model/12/MaxPool")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in pool.attribute}
    assert attributes["pads"] == [0, 0, 1, 1]
    assert attributes["strides"] == [1, 1]
