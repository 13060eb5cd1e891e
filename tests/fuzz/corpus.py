"""Real models to change: those that ship in the onnx package, and networks of our own."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from neocpu.frontend import models
from tests.fuzz.case import Case, fit_feeds
from tests.fuzz.choices import Choices
from tests.light_models import light_model

_DATA: Final = Path(onnx.__file__).parent / "backend" / "test" / "data"
_FOLDERS: Final = ("pytorch-converted", "pytorch-operator", "simple")
_NETWORKS: Final = {
    "mobilenet_v1": (33, 47),
    "mobilenet_v2": (32, 32),
    "mobilenet_v3_large": (40, 33),
    "squeezenet1_0": (47, 35),
    "shufflenet_v2_x1_0": (33, 64),
    "resnet18": (32, 40),
    "yolov3_tiny": (64, 96),
}
"""Built-in ones that are quick to compile, at image sizes that nothing was tuned for."""
_LIGHT: Final = ("squeezenet", "shufflenet")
_MAX_BYTES: Final = 1 << 20


def real_case(rng: Choices) -> Case:
    """Return an unchanged real model with its data."""
    kind = rng.weighted(["node", "file", "network", "light"], [60, 30, 7, 3])
    if kind == "node":
        name, model, feeds = rng.choice(_node_tests())
        return Case(model, feeds, name)
    if kind == "file":
        return _from_folder(rng.choice(_model_folders()))
    if kind == "light":
        name = rng.choice(_LIGHT)
        model = light_model(name)
        return Case(model, _image(model), f"light {name}")
    name = rng.choice(list(_NETWORKS))
    model = models.build(name, image=_NETWORKS[name])
    return Case(model, _image(model), name)


def _image(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        name: draw.standard_normal(array.shape).astype(np.float32)
        for name, array in fit_feeds(model, {}).items()
    }


@functools.cache
def _node_tests() -> list[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Return onnx's tests of single operators that have tensors for inputs."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of casts that overflow
        tests = collect_testcases(None)
    found = []
    for test in tests:
        names = [value.name for value in test.model.graph.input]
        inputs = test.data_sets[0][0] if test.data_sets else []
        plain = len(inputs) == len(names) and all(
            isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in inputs
        )
        if plain and test.model.ByteSize() < _MAX_BYTES:
            found.append((test.name, test.model, dict(zip(names, inputs, strict=True))))
    return sorted(found, key=lambda entry: entry[0])


@functools.cache
def _model_folders() -> list[Path]:
    paths = [path for folder in _FOLDERS for path in sorted((_DATA / folder).glob("*/model.onnx"))]
    return [path.parent for path in paths if path.stat().st_size < _MAX_BYTES]


def _from_folder(folder: Path) -> Case:
    model = onnx.load(folder / "model.onnx")
    known = {}
    for index, value in enumerate(model.graph.input):
        data = folder / "test_data_set_0" / f"input_{index}.pb"
        if data.exists() and value.type.HasField("tensor_type"):
            tensor = onnx.TensorProto.FromString(data.read_bytes())
            known[value.name] = numpy_helper.to_array(tensor)
    return Case(model, fit_feeds(model, known), folder.name)
