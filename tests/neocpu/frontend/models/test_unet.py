"""U-Net against the figures of the published implementation."""

import numpy as np
import onnx
import pytest
from network_measures import multiply_accumulates, random_image, run, shapes

from neocpu.frontend.models import MODELS, build

WIDTHS = (64, 128, 256, 512, 1024)


def test_multiply_accumulates_follow_from_the_papers_figure():
    """Figure 1: two 3x3 at each depth, 2x2 up-convolutions that halve the channels, a 1x1."""
    total = 256**2 * 64
    for depth, width in enumerate(WIDTHS):
        pixels = (256 >> depth) ** 2
        above = WIDTHS[depth - 1] if depth else 3
        total += pixels * 9 * (above * width + width * width)
        if depth < 4:
            total += pixels * 9 * (2 * width * width + width * width)
            total += pixels * 2 * width * width
    assert multiply_accumulates(build("unet")) == total
    assert MODELS["unet"].gmacs == round(total / 1e9, 3)


@pytest.mark.parametrize("image", [(53, 70), (31, 16)])
def test_output_is_as_large_as_any_image(image):
    model = build("unet", batch=2, image=image)
    depths = [n.output[0] for n in model.graph.node if n.op_type in ("Conv", "ConvTranspose")]
    values = run(model, random_image(2, 3, *image), *depths)
    assert values["output"].shape == (2, 1, *image)
    assert np.unique(values["output"]).size > 0.9 * values["output"].size
    assert all(0.2 < values[depth].std() < 20 for depth in depths)


def test_odd_images_are_padded_at_the_end_first():
    model = build("unet", image=(53, 64))
    pads = {
        node.output[0]: _constant(model, node.input[1])
        for node in model.graph.node
        if node.op_type == "Pad"
    }
    # 53, 26, 13, 6, 3: odd at two depths.
    assert list(pads) == ["/up2/Pad_output_0", "/up4/Pad_output_0"]
    assert all(p.tolist() == [0, 0, 0, 0, 0, 0, 1, 0] for p in pads.values())
    assert shapes(model)["/up4/Pad_output_0"] == (1, 64, 53, 64)


def _constant(model, name):
    return next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)
