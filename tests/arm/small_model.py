"""One convolution, and an input for it."""

from onnx import ModelProto
from text_models import floats, text_model

IMAGE = floats(1, 16, 12, 12, seed=1)


def small_model() -> ModelProto:
    """Return a 3x3 convolution of `IMAGE` with a ReLU."""
    return text_model(
        """small (float[1, 16, 12, 12] x) => (float[a, b, c, d] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w)
            y = Relu (c)
        }""",
        {"w": floats(32, 16, 3, 3, scale=1 / 12)},
    )
