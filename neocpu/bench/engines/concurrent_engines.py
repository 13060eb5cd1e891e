"""Engines that make several calls at once for the most calls a second, each in its own ways.

All engines use the same total number of threads, and float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from neocpu.bench.engines.engine_session import Inputs, Session
from neocpu.bench.engines.engines import (
    Loader,
    compile_openvino,
    load_ncnn,
    load_neocpu,
    load_onnxruntime,
    openvino_session,
)
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO

SESSIONS: Final = f"{ONNXRUNTIME}-sessions"
"""ONNX Runtime with a session for each call at once."""


def called_by(session: Session, runs: Sequence[Callable[[], Any]]) -> Session:
    """Return a session whose `run_many` calls each of ``runs`` from its own thread.

    Each thread makes at least one call, however short calls are. A thread that is done takes the
    next call, so that a delayed thread makes fewer.
    """
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
    """Load an artifact on streams that share its weights."""
    session = load_neocpu(path, threads // streams, inputs, streams)
    return called_by(session, [session.run] * streams)


def load_sessions(loader: Loader, path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    """Load a model once for each simultaneous call, on a share of the threads."""
    sessions = [loader(path, threads // streams, inputs) for _ in range(streams)]
    return called_by(sessions[0], [session.run for session in sessions])


def load_callers(path: str, threads: int, inputs: Inputs, streams: int) -> Session:
    """Load one session of ONNX Runtime that is called from several threads.

    Callers compute too, so the session has only the remaining threads.
    """
    session = load_onnxruntime(path, threads - streams + 1, inputs)
    return called_by(session, [session.run] * streams)


def load_openvino(path: str, threads: int, inputs: Inputs, streams: int) -> Session:
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
CONCURRENT: Final[Mapping[str, ConcurrentLoader]] = MappingProxyType(
    {
        "neocpu": load_streams,
        SESSIONS: partial(load_sessions, load_onnxruntime),
        ONNXRUNTIME: load_callers,
        OPENVINO: load_openvino,
        "ncnn": partial(load_sessions, load_ncnn),
    }
)
"""Loaders of such sessions from a path, total threads, inputs and simultaneous calls.

With 0 calls, OpenVINO chooses the number.
"""
