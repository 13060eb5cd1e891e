"""ONNX Runtime as an oracle, where it is installed: for models that numpy cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import onnx

from neocpu.foundation.arrays import Array
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.quiet_onnxruntime import import_onnxruntime
from neocpu.frontend.onnx_graph.weight_store import array_of, whole
from neocpu.frontend.onnx_graph.weightless_model import Skeleton, strip_weights
from neocpu.verification.reference.runner import run_each_image

_FED: Final = frozenset(
    onnx.TensorProto.DataType.Value(name)
    for name in """
    BOOL DOUBLE FLOAT FLOAT16 INT16 INT32 INT64 INT8 UINT16 UINT32 UINT64 UINT8
    """.split()
)
"""Types of elements that numpy has, too."""


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
    options.intra_op_num_threads = usable_cpus()  # whatever a control group allows
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )

    def session_of(given: onnx.ModelProto) -> Any:
        return onnxruntime.InferenceSession(
            given.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    names = [value.name for value in model.graph.output]
    session, weights = None, dict[str, Array]()
    if not optimised and (apart := _weights_apart(model)):  # whose constants nobody folds
        with suppress(Exception):  # a kernel that must know its weights when it is made
            session, weights = session_of(apart.model), _arrays(apart.weights)
    if session is None:
        session = session_of(whole(model))
    return run_each_image(
        model,
        inputs,
        lambda one: dict(zip(names, session.run(names, {**weights, **one}), strict=True)),
    )


def _weights_apart(model: onnx.ModelProto) -> Skeleton | None:
    """Return a model whose weights are fed beside the inputs; None if some cannot be.

    Written into a model's bytes and read again they would be copied several times.
    """
    skeleton = strip_weights(model)
    fed = all(tensor.data_type in _FED for tensor in skeleton.weights.values())
    return skeleton if fed else None


def _arrays(weights: Mapping[str, onnx.TensorProto]) -> dict[str, Array]:
    return {name: array_of(tensor) for name, tensor in weights.items()}
