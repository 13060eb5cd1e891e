"""The inference engines that can be compared, each set to float32 and a number of threads.

Without a number of threads, they have their own defaults. Under the names of `IN_BFLOAT16`, they
compute in bfloat16 where they can.

Each runs in its own process: see `neocpu.bench.engines.contender_process`. An engine is one loader
and one entry in `ENGINES`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from neocpu.bench.engines.engine_session import AnyArray, Inputs, Session
from neocpu.foundation.peers import NCNN, ONNXRUNTIME, OPENVINO, PEERS, import_onnxruntime


def load_neocpu(path: str, threads: int | None, inputs: Inputs, streams: int = 1) -> Session:
    """Load an artifact, on so many streams of ``threads`` threads each."""
    import neocpu

    module = neocpu.load(path, threads, streams=streams)
    if streams > 1:
        module.warmup(1)  # otherwise short calls may all use the same stream
    ordered = [inputs[spec.name] for spec in module.inputs]

    def run() -> Sequence[AnyArray]:
        outputs = module(ordered)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return Session(
        version=neocpu.__version__, run=run, outputs=tuple(spec.name for spec in module.outputs)
    )


def load_onnxruntime(path: str, threads: int | None, inputs: Inputs) -> Session:
    """Load an ONNX model with all of ONNX Runtime's graph optimisations."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    if threads is not None:
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

    names = tuple(output.name for output in session.get_outputs())
    return Session(version=onnxruntime.__version__, run=run, outputs=names)


def load_onnxruntime_for_bfloat16(path: str, threads: int | None, inputs: Inputs) -> Session:
    """Load an ONNX model in float32, because ONNX Runtime has no bfloat16 on x86."""
    return replace(load_onnxruntime(path, threads, inputs), computes_in="f32")


def load_openvino(
    path: str, threads: int | None, inputs: Inputs, precision: str = "f32"
) -> Session:
    """Load a model for lowest latency, in float32 because the default on new CPUs is bfloat16."""
    import openvino

    config = {}
    if threads is not None:
        config = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
        }
    compiled = compile_openvino(path, config)
    session = openvino_session(compiled, inputs)
    if precision == "bf16":
        # This is only a hint: without instructions for bfloat16, OpenVINO stays in float32.
        taken = compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.bf16
        return replace(session, computes_in="bf16" if taken else "f32")
    return session


def compile_openvino(path: str, config: Mapping[str, Any]) -> Any:
    import openvino

    core = openvino.Core()
    return core.compile_model(core.read_model(path), "CPU", dict(config))


def openvino_session(compiled: Any, inputs: Inputs) -> Session:
    import openvino

    request = compiled.create_infer_request()
    feed = dict(inputs)

    def run() -> Sequence[AnyArray]:
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    names = tuple(port.any_name for port in compiled.outputs)
    return Session(version=openvino.__version__.split("-")[0], run=run, outputs=names)


def convert_for_ncnn(model: Path, folder: Path) -> None:
    from neocpu.bench.engines.ncnn_engine import convert

    convert(model, folder)


def load_ncnn(path: str, threads: int | None, inputs: Inputs, *, bfloat16: bool = False) -> Session:
    from neocpu.bench.engines.ncnn_engine import load

    return load(path, threads, inputs, bfloat16=bfloat16)


IN_BFLOAT16: Final[Mapping[str, str]] = {peer: f"{peer}-bf16" for peer in PEERS}  # in `ENGINES`

Loader: TypeAlias = Callable[[str, int | None, Inputs], Session]
ENGINES: Final[Mapping[str, Loader]] = {
    "neocpu": load_neocpu,
    ONNXRUNTIME: load_onnxruntime,
    OPENVINO: load_openvino,
    NCNN: load_ncnn,
    IN_BFLOAT16[ONNXRUNTIME]: load_onnxruntime_for_bfloat16,
    IN_BFLOAT16[OPENVINO]: partial(load_openvino, precision="bf16"),
    IN_BFLOAT16[NCNN]: partial(load_ncnn, bfloat16=True),
}
"""The loaders of all engines: each makes a session from a path, threads and inputs."""

Converter: TypeAlias = Callable[[Path, Path], None]
CONVERTERS: Final[Mapping[str, Converter]] = dict.fromkeys(
    (NCNN, IN_BFLOAT16[NCNN]), convert_for_ncnn
)
"""Converters for engines that do not read ONNX: from a model into a folder."""


SESSIONS: Final = f"{ONNXRUNTIME}-sessions"  # ONNX Runtime with a session for each call at once


def called_by(session: Session, runs: Sequence[Callable[[], Any]]) -> Session:
    """Return a session whose `run_many` calls each of ``runs`` in its thread at least once."""
    streams = len(runs)
    callers = ThreadPoolExecutor(streams)

    def run_many(times: int) -> int:
        made = _in_laps(times, streams)
        tickets = itertools.count(streams)

        def call(run: Callable[[], Any]) -> None:
            run()
            while next(tickets) < made:
                run()

        for _ in callers.map(call, runs if made else ()):  # raises the exceptions of calls
            pass
        return made

    return replace(session, streams=streams, run_many=run_many)


def load_streams(path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    session = load_neocpu(path, threads // streams, inputs, streams)
    return called_by(session, [session.run] * streams)


def load_sessions(loader: Loader, path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    """Load a model once for each simultaneous call, on a share of the threads."""
    sessions = [loader(path, threads // streams, inputs) for _ in range(streams)]
    return called_by(sessions[0], [session.run for session in sessions])


def load_callers(path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    """Load one session of ONNX Runtime; callers compute too, so it has only the other threads."""
    session = load_onnxruntime(path, threads - streams + 1, inputs)
    return called_by(session, [session.run] * streams)


def load_openvino_streams(path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    """Load a model with OpenVINO's throughput hint, and its own number of simultaneous requests."""
    import openvino

    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "THROUGHPUT",
        **({"NUM_STREAMS": str(streams)} if streams else {}),
    }
    compiled = compile_openvino(path, config)
    chosen = int(compiled.get_property("NUM_STREAMS"))
    queue = openvino.AsyncInferQueue(compiled)
    feed = dict(inputs)

    def run_many(times: int) -> int:
        made = _in_laps(times, chosen)
        for _ in range(made):
            queue.start_async(feed, share_inputs=True)
        queue.wait_all()
        return made

    return replace(openvino_session(compiled, inputs), streams=chosen, run_many=run_many)


def _in_laps(times: int, streams: int) -> int:
    """Return the least multiple of ``streams`` that is at least ``times``."""
    return streams * math.ceil(times / streams)


ConcurrentLoader: TypeAlias = Callable[[str, int, Inputs, int], Session]
CONCURRENT: Final[Mapping[str, ConcurrentLoader]] = {
    "neocpu": load_streams,
    SESSIONS: partial(load_sessions, load_onnxruntime),
    ONNXRUNTIME: load_callers,
    OPENVINO: load_openvino_streams,
    "ncnn": partial(load_sessions, load_ncnn),
}
"""Loaders from a path, total threads, inputs and simultaneous calls; with 0, OpenVINO chooses."""
