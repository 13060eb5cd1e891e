"""A loop that pastes masks into images; data decides the number of detections."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.control_flow.control_flow_models import parsed
from tests.neocpu.frontend.selections import assert_as_onnxruntime

MASKS, SIDE, HEIGHT, WIDTH = 6, 5, 13, 17

#: GROW is added to the extents of a box.
PASTING = """
g (bool[6] keep, float[6,1,5,5] masks, float[6,4] boxes) => (float[n,1,13,17] images)
<int64 zero = {0}, int64[1] c_zero = {0}, int64[1] c_one = {1}, int64[2] ones = {1, 1},
 int64[2] zeros = {0, 0}, int64[2] pairs = {2, 2}, int64[2] places = {1, 0},
 int64[2] plane = {0, 1}, int64[2] image = {13, 17}, float[0,13,17] nothing = {}> {
  kept = NonZero(keep)
  which = Squeeze(kept, c_zero)
  padded = Gather(masks, which)
  floats = Gather(boxes, which)
  corners = Cast<to = 7>(floats)
  shape = Shape(padded)
  number = Gather(shape, zero)
  pasted = Loop (number, , nothing) <body = b (int64 i, bool going, float[] before)
      => (bool goes_on, float[] after_it) {
    mask = Gather(padded, i)
    box = Gather(corners, i)
    low_xy, high_xy = Split(box, pairs)
    low = Gather(low_xy, places)
    high = Gather(high_xy, places)
    difference = Sub(high, low)
    extents = Add(difference, GROW)
    size = Max(extents, ones)
    mask4 = Unsqueeze(mask, c_zero)
    sizes = Concat<axis = 0>(ones, size)
    resized = Resize<mode = "linear">(mask4, , , sizes)
    flat = Squeeze(resized, plane)
    start = Max(low, zeros)
    after = Add(high, ones)
    end = Min(after, image)
    from = Sub(start, low)
    to = Sub(end, low)
    seen = Slice(flat, from, to)
    rest = Sub(image, end)
    pads = Concat<axis = 0>(start, rest)
    whole = Pad(seen, pads)
    row = Unsqueeze(whole, c_zero)
    after_it = Concat<axis = 0>(before, row)
    goes_on = Identity(going)
  }>
  images = Unsqueeze(pasted, c_one)
}"""


def pasting(grow: str = "ones"):
    return parsed(PASTING.replace("GROW", grow), opset=17)


def test_the_loop_that_pastes_masks_becomes_products_of_matrices():
    boxes = np.array(
        [[1, 2, 9, 7], [-3, -4, 3, 2], [8, 6, 25, 19], [4, 4, 4, 4], [2, 1, 3, 11], [0, 0, 16, 12]]
    )
    masks = np.random.default_rng(0).uniform(size=(MASKS, 1, SIDE, SIDE)).astype(np.float32)
    given = {"masks": masks, "boxes": boxes.astype(np.float32)}
    keeps = (np.ones(MASKS, bool), np.zeros(MASKS, bool), np.arange(MASKS) % 2 == 1)
    loaded = assert_as_onnxruntime(pasting(), [{**given, "keep": keep} for keep in keeps])
    assert loaded.outputs[0].shape == (MASKS, 1, HEIGHT, WIDTH)


def test_a_loop_that_pastes_something_else_stays_a_loop():
    with pytest.raises(UnsupportedError, match="Loop"):
        load_model(pasting("pairs"))
