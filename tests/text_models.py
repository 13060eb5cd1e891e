"""Models in ONNX's text format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser


def text_model(
    text: str, weights: Mapping[str, Any] | None = None, opset: int = 17, domains: str = ""
) -> onnx.ModelProto:
    """Return the model of a graph in ONNX's text format, with these constants besides.

    ``domains`` are further imports, such as ``"my.domain": 1``.
    """
    imports = ", ".join(filter(None, (f'"": {opset}', domains)))
    model = parser.parse_model(f"<ir_version: 9, opset_import: [{imports}]> {text}")
    constants = {name: np.asarray(each) for name, each in (weights or {}).items()}
    made = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model.graph.initializer.extend(made)
    return model


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Return nodes of ONNX's text form, as in ``y = Concat<axis = 0>(a, b)``."""
    return list(parser.parse_graph(f"g () => () {{ {text} }}").node)


def floats(*shape: int, seed: int | np.random.Generator = 0, scale: float = 1) -> np.ndarray:
    """Return normal numbers times ``scale``, float32."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return (numbers * scale).astype(np.float32)
