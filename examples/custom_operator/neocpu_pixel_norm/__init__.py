"""PixelNorm, as an operator of ONNX models that neocpu compiles.

Each pixel of an image (N, C, H, W) is divided by the root mean square of its channels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from neocpu import CustomOperator


def compute(inputs: Sequence[te.Tensor], attributes: Mapping[str, Any]) -> te.Tensor:
    """Compute PixelNorm as TVM tensor expressions, which are scheduled like other operators."""
    (x,) = inputs
    n, c, h, w = x.shape
    epsilon = tirx.const(attributes.get("epsilon", 1e-8), x.dtype)
    k = te.reduce_axis((0, c), "k")
    squares = te.compute((n, h, w), lambda n, i, j: te.sum(x[n, k, i, j] * x[n, k, i, j], axis=k))

    def pixel(n: Any, c_: Any, i: Any, j: Any) -> Any:
        return x[n, c_, i, j] * tirx.rsqrt(squares[n, i, j] / c + epsilon)

    return te.compute(x.shape, pixel, name="pixel_norm")


def reference(inputs: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """Compute PixelNorm in numpy, in the type of the input, as a reference."""
    (x,) = inputs
    mean = (x * x).mean(axis=1, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(attributes.get("epsilon", 1e-8)))


OPERATORS = [CustomOperator("pixel_norm", "PixelNorm", compute, reference)]
