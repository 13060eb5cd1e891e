"""A network of named dimensions, compiled once for a set of shapes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from float_models import float_model
from onnx import helper
from onnx.reference import ReferenceEvaluator

import neocpu

SHAPES = [{"x": (n, 3, h, w)} for n, h, w in ((1, 9, 7), (3, 9, 7), (1, 7, 9), (2, 16, 5))]


@dataclass(frozen=True)
class Network:
    """A model, and its compiled artifacts."""

    model: onnx.ModelProto
    path: Path
    single: Path

    def reference(self, x: np.ndarray) -> list[np.ndarray]:
        return ReferenceEvaluator(self.model).run(None, {"x": x})


def network() -> onnx.ModelProto:
    """Two convolutions, one of them with an output of its own."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(size=(13, 3, 3, 3)).astype("float32"),
        "w2": rng.normal(size=(5, 13, 1, 1)).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["y"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["mean"]),
    ]
    outputs = {"y": ("n", 5, "h", "w"), "mean": ("n", 13, 1, 1)}
    model = float_model("sized", nodes, {"x": ("n", 3, "h", "w")}, outputs, weights, 17)
    onnx.checker.check_model(model)
    return model


@pytest.fixture(scope="session")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = tmp_path_factory.mktemp("sized")
    model = network()
    options = {"threads": 2, "only_databases": True}
    with neocpu.compile(model, shapes=SHAPES, **options) as compiled:
        compiled.export(folder / "set.so")
    with neocpu.compile(model, shapes=SHAPES[0], **options) as compiled:
        compiled.export(folder / "single.so")
    return Network(model, folder / "set.so", folder / "single.so")
