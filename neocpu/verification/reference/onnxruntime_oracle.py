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
"""Element types that numpy has, too."""


def version() -> str:
    """Return the installed version; an ImportError says that there is none."""
    return str(import_onnxruntime().__version__)


def run_onnxruntime(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, optimised: bool
) -> dict[str, Array]:
    """Run ``model`` with or without optimisations, which fuse and reorder nodes and so round
    differently.

    Any exception is ONNX Runtime's own.
    """
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # we report failures ourselves
    options.intra_op_num_threads = usable_cpus()  # it does not know the limits of control groups
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
    # Without optimisations, no constants are folded, so that weights can be inputs.
    if not optimised and (separate := _separate_weights(model)):
        with suppress(Exception):  # some kernels need their weights when they are created
            session = session_of(separate.model)
            weights = {name: array_of(tensor) for name, tensor in separate.weights.items()}
    if session is None:
        session = session_of(whole(model))
    return run_each_image(
        model,
        inputs,
        lambda one: dict(zip(names, session.run(names, {**weights, **one}), strict=True)),
    )


def _separate_weights(model: onnx.ModelProto) -> Skeleton | None:
    """Return a model whose weights are passed like inputs; None if some cannot be.

    This saves several copies, which serialising and reading them would make.
    """
    skeleton = strip_weights(model)
    fed = all(tensor.data_type in _FED for tensor in skeleton.weights.values())
    return skeleton if fed else None
