"""The inference engines that can be compared, each pinned to float32 and a number of threads.

They run in a contender's own process: see `neocpu.bench.child`. An engine is one loader and one
entry in `ENGINES`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

AnyArray: TypeAlias = np.ndarray[Any, Any]
Inputs: TypeAlias = Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True)
class Session:
    """A loaded model, bound to its inputs.

    Attributes
    ----------
    version : str
        Of the engine.
    run : callable
        Runs once and returns the outputs in graph order; they live until the next run.
    """

    version: str
    run: Callable[[], Sequence[AnyArray]]


def load_neocpu(path: str, threads: int, inputs: Inputs) -> Session:
    """Load an artifact."""
    import neocpu

    module = neocpu.load(path, threads)
    ordered = [inputs[spec.name] for spec in module.inputs]

    def run() -> Sequence[AnyArray]:
        outputs = module(ordered)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return Session(neocpu.__version__, run)


def load_onnxruntime(path: str, threads: int, inputs: Inputs) -> Session:
    """Load an ONNX model with all of ONNX Runtime's graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = dict(inputs)

    def run() -> Sequence[AnyArray]:
        outputs: Sequence[AnyArray] = session.run(None, feed)
        return outputs

    return Session(onnxruntime.__version__, run)


def load_openvino(path: str, threads: int, inputs: Inputs) -> Session:
    """Load an ONNX model for lowest latency; float32, for its default on new CPUs is bfloat16."""
    import openvino

    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", config)
    request = compiled.create_infer_request()
    feed = dict(inputs)

    def run() -> Sequence[AnyArray]:
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    return Session(openvino.__version__.split("-")[0], run)


Loader: TypeAlias = Callable[[str, int, Inputs], Session]
ENGINES: Final[Mapping[str, Loader]] = MappingProxyType(
    {"neocpu": load_neocpu, "onnxruntime": load_onnxruntime, "openvino": load_openvino}
)
"""Every engine's loader: path, threads and inputs to a session."""

PEERS: Final = tuple(name for name in ENGINES if name != "neocpu")
"""The engines neocpu is compared with; each is a Python package of the same name."""


def installed(peer: str) -> bool:
    """Return whether a peer's package is installed, without importing it."""
    return importlib.util.find_spec(peer) is not None
