"""Detections of batches without a plan."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import neocpu
from neocpu.batch import Predictor
from neocpu.foundation.errors import UsageError
from tests.neocpu.ir.row_analysis.test_selected import BOXES, CLASSES, LOOK_UP, detector

OUTPUTS = "float[r,7] detections, float[n,20,4] b, int64[r,3] selected"


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    model = detector(LOOK_UP, OUTPUTS)
    paths = {}
    for batches in ((1, 3), (2, 3)):
        shapes = [{"x": (n, BOXES, 4 + CLASSES)} for n in batches]
        with neocpu.compile(model, shapes=shapes, threads=1, only_databases=True) as compiled:
            paths[batches] = tmp_path_factory.mktemp("set") / "detector.so"
            compiled.export(paths[batches])
    return model, paths


@pytest.mark.parametrize("count", [2, 5])
def test_boxes_have_the_numbers_of_their_images(detections, count):
    model, paths = detections
    x = np.random.default_rng(count).uniform(0, 1, (count, BOXES, 4 + CLASSES)).astype("float32")
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    assert set(expected[2][:, 0]) == set(range(count))
    with neocpu.load(paths[1, 3], 1) as module:
        for mine, right in zip(module(x), expected, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-5)
        room = 12 * count
        out = [
            np.empty((room, 7), "float32"),
            np.empty((count, BOXES, 4), "float32"),
            np.empty((room, 3), "int64"),
        ]
        for mine, right in zip(module(x, out=out), expected, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-5)


@pytest.mark.parametrize("found_in", [0, 3, None])
def test_images_may_have_no_boxes(detections, found_in):
    _, paths = detections
    x = np.zeros((5, BOXES, 4 + CLASSES), "float32")
    with neocpu.load(paths[1, 3], 1) as module:
        if found_in is not None:
            x[found_in] = np.random.default_rng(1).uniform(0, 1, (BOXES, 4 + CLASSES))
            alone, _, selected = module(x[found_in : found_in + 1])
            assert len(selected)
            alone[:, 0] = selected[:, 0] = found_in
        else:
            alone, selected = np.empty((0, 7), "float32"), np.empty((0, 3), "int64")
        found, _, numbers = module(x)
        np.testing.assert_array_equal(numbers, selected)
        np.testing.assert_allclose(found, alone, rtol=1e-5)


def test_composed_detections_need_a_plan_of_one_row(detections):
    _, paths = detections
    x = np.zeros((5, BOXES, 4 + CLASSES), "float32")
    with neocpu.load(paths[2, 3], 1) as module:
        with pytest.raises(UsageError, match="no plan of one row"):
            module(x)


def test_a_data_set_s_row_has_all_the_boxes_of_a_call(detections):
    model, paths = detections
    x = np.random.default_rng(0).uniform(0, 1, (3, BOXES, 4 + CLASSES)).astype("float32")
    made = Predictor(paths[1, 3])({"x": x})
    for image, found in zip(x, made["detections"], strict=True):
        expected = ReferenceEvaluator(model).run(None, {"x": image[None]})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
