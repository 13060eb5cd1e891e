"""Requests for a model that takes ranges of extents: shapes, metadata, batches and metrics."""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sized_toys import HEIGHT, WIDTH, picture, sized
from v2_requests import body, tensor

from neocpu.foundation.size_formulas import Size
from neocpu.serving.metadata import model_metadata
from neocpu.serving.metrics import OTHERS, SIZES, Metrics, ModelMetrics
from neocpu.serving.refusals import RequestError
from neocpu.serving.request import parse_request, values_at_most
from neocpu.serving.sized_requests import SizedRequests, rows_of

ROWS = Size(name="n", least=1, most=16, step=1, typical=4)
LENGTH = Size(name="t", least=2, most=10, step=2, typical=6)


def rows_and_length():
    return sized(
        (ROWS, LENGTH), ((0, 0), (0, 1)), lambda n, t: ((n, t),), lambda n, t: ((n, t // 2),)
    )


def parse(requests, *tensors):
    typical = (requests.sized.typical,)
    content = memoryview(body(*tensors))
    return parse_request(content, None, typical, values_at_most([requests.largest]), requests)


def refused(requests, *tensors):
    with pytest.raises(RequestError) as told:
        parse(requests, *tensors)
    assert "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("size", [(64, 64), (72, 128)])
def test_requests_choose_sizes(size):
    height, width = size
    requests = SizedRequests(picture())
    x = np.random.default_rng(0).random((1, 3, height, width), "float32")
    found = parse(requests, tensor("m", np.ones((1, height // 2), "float32")), tensor("x", x))
    np.testing.assert_array_equal(found.inputs["x"], x)
    assert found.signature == 0
    assert requests.name_of(found.inputs) == f"h={height},w={width}"


def test_shapes_out_of_range_are_refused_with_the_nearest():
    x, m = np.ones((1, 3, 64, 60), "float32"), np.ones((1, 32), "float32")
    assert "input 'x': extent 3 is 60, and the module takes 64..1024 in steps of 8" in refused(
        SizedRequests(picture()), tensor("x", x), tensor("m", m)
    )
    assert "must be 32 because extent 2 of input 'x' is 64" in refused(
        SizedRequests(picture()),
        tensor("x", np.ones((1, 3, 64, 64), "float32")),
        tensor("m", np.ones((1, 33), "float32")),
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shape": [3, 64, 64]}, "takes float32[1,3,64..1024/8,64..1024/8], got shape [3, 64, 64]"),
        ({"shape": [1] * 5000}, "got shape [1, 1, 1, 1, 1, 1, 1, 1, ...]"),
        ({"shape": [1, 3, -64, 64]}, "the model takes shape [1, 3, 256, 320]"),
        ({"shape": [1, 3, 64, 2**63]}, "the model takes shape [1, 3, 256, 320]"),
        ({"shape": [1, 3, True, 64]}, "shape must be a list of integers"),
        ({"shape": "1,3,64,64"}, "shape must be a list of integers"),
        ({"shape": [1, 3, 64, 64], "name": "z"}, "no input 'z'"),
    ],
)
def test_what_is_no_shape_is_refused(entry, message):
    given = {**tensor("x", np.ones((1, 3, 64, 64), "float32")), **entry}
    assert message in refused(SizedRequests(picture()), given)


def test_metadata_have_minus_one_where_extents_vary():
    requests = SizedRequests(picture())
    found = model_metadata("net", ["1"], (requests.sized.typical,), requests)
    assert [each["shape"] for each in found["inputs"]] == [[1, 3, -1, -1], [1, -1]]
    assert [each["shape"] for each in found["outputs"]] == [[1, 8, -1, -1]]


def test_joint_requests_have_any_rows_and_choose_the_rest():
    requests = SizedRequests(rows_and_length(), rows=8, size=ROWS)
    for rows in (1, 8):
        found = parse(requests, tensor("x", np.ones((rows, 4), "float32")))
        assert found.inputs["x"].shape == (rows, 4)
        assert requests.name_of(found.inputs) == "t=4"
    assert "from 1 to 8 rows" in refused(requests, tensor("x", np.ones((9, 4), "float32")))
    assert "extent 1 is 5" in refused(requests, tensor("x", np.ones((2, 5), "float32")))
    found = model_metadata("net", ["1"], (requests.sized.typical,), requests)
    assert [each["shape"] for each in (*found["inputs"], *found["outputs"])] == [[-1, -1]] * 2


def test_rows_are_a_size_of_all_inputs_and_outputs():
    assert rows_of(rows_and_length()) == ROWS
    assert rows_of(picture()) is None
    mixed = sized((ROWS,), ((0, 0),), lambda n: ((n, 2),), lambda n: ((n, 3), (1, 3)))
    assert rows_of(mixed) is None
    heights = sized(
        (HEIGHT, WIDTH), ((0, 0), (1, 0)), lambda h, w: ((h,), (w,)), lambda h, w: ((h,),)
    )
    assert rows_of(heights) is None


@pytest.mark.parametrize(
    ("size", "most", "rows"),
    [
        (ROWS, 6, [1, 2, 4, 6]),
        (ROWS, 100, [1, 2, 4, 8, 16]),
        (ROWS, 1, [1]),
        (Size(name="n", least=4, most=64, step=4, typical=8), 2, [4]),
        (Size(name="n", least=4, most=64, step=4, typical=8), 14, [4, 8, 12]),
    ],
)
def test_runs_of_some_rows_are_timed(size, most, rows):
    assert size.powers(most) == rows


def test_metrics_name_a_bounded_number_of_sizes():
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for _ in range(2):  # a model that is loaded again has the same series
        model = ModelMetrics(metrics, "net", "1")
        for number in range(SIZES + 40):
            model.ran_size(0.001, f"h={number}")
    text = generate_latest(registry).decode()
    counts = [line for line in text.splitlines() if "size_inference_seconds_count{" in line]
    assert len(counts) == SIZES + 1
    assert any(f'size="{OTHERS}"' in line and line.endswith(" 80.0") for line in counts)
