"""A loop that finds keypoints; data decides the number of detections and their map sizes."""

from __future__ import annotations

import numpy as np
import pytest
from differential import run_onnxruntime

import neocpu
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.control_flow.control_flow_models import parsed

FOUND, MAPS, HEIGHT, WIDTH = 5, 3, 7, 9

#: The body as PyTorch writes it.
BODY = """
b (int64 i, bool c, float[p,3,3] places_before, float[q,3] scores_before)
    => (bool goes_on, float[] places_after, float[] scores_after) {
  maps_i = Gather<axis = 0>(maps, i)
  across_i = Gather<axis = 0>(across, i)
  down_i = Gather<axis = 0>(down, i)
  widths_i = Gather<axis = 0>(widths, i)
  heights_i = Gather<axis = 0>(heights, i)
  lefts_i = Gather<axis = 0>(lefts, i)
  tops_i = Gather<axis = 0>(tops, i)
  scale_x = Div(widths_i, across_i)
  scale_y = Div(heights_i, down_i)
  maps4 = Unsqueeze(maps_i, c_one)
  down_1 = Unsqueeze(down_i, c_zero)
  across_1 = Unsqueeze(across_i, c_zero)
  sides = Concat<axis = 0>(down_1, across_1)
  sides_64 = Cast<to = 7>(sides)
  shape4 = Shape(maps4)
  shape2 = Slice(shape4, c_zero, c_two, c_zero)
  sizes = Concat<axis = 0>(shape2, sides_64)
  resized = Resize<mode = "cubic", cubic_coeff_a = CUBIC>(maps4, , , sizes)
  whole = Gather<axis = 1>(resized, zero)
  shape = Shape(whole)
  w = Gather<axis = 0>(shape, two)
  lines = Reshape(whole, flat)
  place = ArgMax<axis = 1, keepdims = 0>(lines)
  x = Mod(place, w)
  y = Div(place, w)
  chosen = Gather<axis = 1>(whole, y)
  best = Gather<axis = 2>(chosen, x)
  all = Reshape(best, row)
  scores_i = Gather<axis = 0>(all, diagonal)
  x_f = Cast<to = 1>(x)
  x_c = Add(half, x_f)
  x_s = Mul(x_c, scale_x)
  x_p = Add(x_s, lefts_i)
  x_r = Unsqueeze(x_p, c_zero)
  y_f = Cast<to = 1>(y)
  y_c = Add(half, y_f)
  y_s = Mul(y_c, scale_y)
  y_p = Add(y_s, tops_i)
  y_r = Unsqueeze(y_p, c_zero)
  count = Shape(y_p)
  seen = ConstantOfShape<value = float[1] {1}>(count)
  seen_r = Unsqueeze(seen, c_zero)
  places_i = Concat<axis = 0>(x_r, y_r, seen_r)
  places_r = Unsqueeze(places_i, REPEATED)
  places_f = Cast<to = 1>(places_before)
  places_after = Concat<axis = 0>(places_f, places_r)
  scores_r = Unsqueeze(scores_i, c_zero)
  scores_after = Concat<axis = 0>(scores_before, scores_r)
  goes_on = Identity(going)
}"""

#: A loop over those detections that are kept.
FINDING = """
g (bool[5] keep, float[5,3,7,9] all_maps, float[5,4] boxes)
    => (float[n,3,3] places, float[n,3] scores)
<int64 zero = {0}, int64 two = {2}, int64[1] c_zero = {0}, int64[1] c_one = {1},
 int64[1] c_two = {2}, int64[2] flat = {3, -1}, int64[1] row = {-1}, float half = {0.5},
 float least = {1}, bool going = {1}, int64[2] no_rows = {0, 3}, int64[1] no_scores = {0},
 int64[3] diagonal = {0, 13, 26}> {
  kept = NonZero(keep)
  which = Squeeze(kept, c_zero)
  maps = Gather(all_maps, which)
  some = Gather(boxes, which)
  lefts_2, tops_2, right_2, down_2 = Split<axis = 1, num_outputs = 4>(some)
  lefts = Squeeze(lefts_2, c_one)
  right = Squeeze(right_2, c_one)
  widths_any = Sub(right, lefts)
  widths = Clip(widths_any, least)
  across = Ceil(widths)
  tops = Squeeze(tops_2, c_one)
  bottom = Squeeze(down_2, c_one)
  heights_any = Sub(bottom, tops)
  heights = Clip(heights_any, least)
  down = Ceil(heights)
  counted_shape = Shape(COUNTED)
  number = Gather(counted_shape, zero)
  maps_shape = Shape(maps)
  maps_each = Slice(maps_shape, c_one, c_two)
  places_shape = Concat<axis = 0>(no_rows, maps_each)
  places_0 = ConstantOfShape(places_shape)
  scores_shape = Concat<axis = 0>(no_scores, maps_each)
  scores_0 = ConstantOfShape(scores_shape)
  places, scores = Loop (number, going, places_0, scores_0) <body = BODY>
}"""


def finding(cubic: float = -0.75, counted: str = "maps", repeated: str = "c_zero"):
    body = BODY.replace("CUBIC", str(cubic)).replace("REPEATED", repeated)
    return parsed(FINDING.replace("COUNTED", counted).replace("BODY", body), opset=18)


def test_the_loop_that_finds_keypoints_becomes_one_operator():
    model = finding()
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 20, (FOUND, 2))
    sides = [[13.3, 17.8], [1, 1], [0.2, 40], [9, 7], [4.5, 3.9]]
    given = {
        "all_maps": rng.normal(size=(FOUND, MAPS, HEIGHT, WIDTH)).astype(np.float32),
        "boxes": np.concatenate([low, low + sides], axis=1).astype(np.float32),
    }
    keeps = (np.ones(FOUND, bool), np.zeros(FOUND, bool), np.arange(FOUND) % 2 == 1)
    with neocpu.compile(model, verify=False) as compiled, compiled.module() as module:
        for keep in keeps:
            feeds = {**given, "keep": keep}
            places, scores = module.run(feeds).values()
            expected = run_onnxruntime(model, feeds)
            np.testing.assert_allclose(places, expected[0], rtol=1e-5, atol=1e-4)
            np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cubic": -0.5}, "Loop 'places'"),
        ({"repeated": "c_two"}, "Loop 'places'"),
        ({"counted": "keep"}, "ResizedPeaks 'scores' .it does not run once for each"),
    ],
)
def test_a_loop_that_finds_something_else_is_refused(changed, named):
    with pytest.raises(UnsupportedError, match=named) as raised:
        load_model(finding(**changed))
    assert "\n" not in str(raised.value)
