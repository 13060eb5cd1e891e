"""Resizing in every layout, against ONNX's own evaluator."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run
from onnx.reference import ReferenceEvaluator
from text_models import text_model

from neocpu.schedules.operators.resize import ResizeWorkload, estimate, lower_resize
from neocpu.schedules.vocabulary.layout import DataLayout, Format

MODES = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}


def reference(x, workload):
    how = f'mode = "{MODES[workload.method]}", nearest_mode = "floor"'
    how += f', coordinate_transformation_mode = "{workload.coordinates}"'
    graph = "resize (double[a, b, c, d] x, int64[4] size) => (double[a, b, e, f] y)"
    model = text_model(f"{graph} {{ y = Resize <{how}> (x, , , size) }}")
    size = np.array(workload.output_shape, np.int64)
    return ReferenceEvaluator(model).run(None, {"x": x.astype("float64"), "size": size})[0]


@pytest.mark.parametrize("block", [1, 8, 16])
@pytest.mark.parametrize(
    ("method", "coordinates", "shape", "size"),
    [
        ("nearest_neighbor", "asymmetric", (1, 19, 5, 7), (10, 14)),
        ("nearest_neighbor", "asymmetric", (2, 3, 7, 5), (3, 11)),
        ("linear", "half_pixel", (2, 19, 5, 3), (13, 6)),
        ("linear", "align_corners", (1, 8, 9, 1), (4, 5)),
        ("linear", "asymmetric", (1, 5, 6, 40), (12, 17)),
        ("cubic", "half_pixel", (1, 9, 5, 7), (11, 8)),
    ],
)
def test_resize(method, coordinates, shape, size, block):
    workload, form = ResizeWorkload(shape, size, method, coordinates), float32(block)
    x = normal(shape)
    inputs = [form.pack(x), *workload.tables()]
    got = run(lower_resize(workload, form, HOST), inputs, form.shape(workload.output_shape))
    assert np.isfinite(got).all()
    expected = reference(x, workload)
    np.testing.assert_allclose(form.unpack(got, shape[1]), expected, rtol=1e-4, atol=1e-5)


def test_bytes_are_copied():
    workload = ResizeWorkload((1, 40, 3, 5), (6, 10), "nearest_neighbor", "asymmetric")
    form = Format(DataLayout(16), "uint8")
    x = np.arange(600).reshape(workload.shape).astype("uint8")
    inputs = [form.pack(x), *workload.tables()]
    got = run(lower_resize(workload, form, HOST), inputs, form.shape((1, 40, 6, 10)), "uint8")
    np.testing.assert_array_equal(form.unpack(got, 40), x.repeat(2, 2).repeat(2, 3))


def test_pixels_of_nchw_cost_more():
    workload = ResizeWorkload((1, 32, 28, 28), (56, 56), "linear", "half_pixel")
    costs = [estimate(workload, float32(block), HOST, 2) for block in (1, 8)]
    assert costs[0] > costs[1] > 0
