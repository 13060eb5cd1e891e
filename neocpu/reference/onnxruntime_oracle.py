"""ONNX Runtime as an oracle, where it is installed: for models that numpy cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy.typing as npt
import onnx

from neocpu.foundation.quiet_onnxruntime import import_onnxruntime
from neocpu.reference.runner import run_each_image

Array: TypeAlias = npt.NDArray[Any]


def version() -> str:
    """Return the version that is installed.

    Raises
    ------
    ImportError
        If none is.
    """
    return str(import_onnxruntime().__version__)


def run_onnxruntime(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, optimised: bool
) -> dict[str, Array]:
    """Run ``model``, its nodes as they are or fused and reordered: other ways to round.

    Raises
    ------
    Exception
        Of ONNX Runtime's own, if it cannot.
    """
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # failures are told in our own words
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    names = [value.name for value in model.graph.output]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return run_each_image(
        model, inputs, lambda one: dict(zip(names, session.run(names, dict(one)), strict=True))
    )
