"""The process of one contender: ``python -m neocpu.bench.engines.contender_process``.

Requests and replies are lines of JSON on standard input and output; every request gets one reply,
``{"ok": …}`` or ``{"error": "one line"}``:

======================================================  ===========================================
``{"do": "load", "engine", "path", "threads",           ``{"version", "seconds", "outputs"}``, the
"inputs"}``, ``inputs`` as `save_inputs` wrote them;    outputs by name, ``"computes_in"``,
``"streams"`` of an engine that makes calls at once     ``"streams"``
``{"do": "run", "times", "untimed"}``                   ``{"seconds": [of each timed run]}``; of
                                                        calls at once, one: seconds for each
``{"do": "save", "path"}``                              ``{}``; an .npz of the outputs in order
======================================================  ===========================================

The end of standard input ends the process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
from typing import IO, Final

import numpy as np

from neocpu.bench.engines.engine_session import Session, load_inputs
from neocpu.bench.engines.engines import CONCURRENT, ENGINES
from neocpu.foundation.json_codec import JsonObject

LEAST_LAPS: Final = 8  # least timed runs of each stream, as some are idle at the end
_PR_SET_PDEATHSIG: Final = 1


class Server:
    def __init__(self) -> None:
        self._session: Session | None = None

    def answer(self, request: JsonObject) -> JsonObject:
        """Carry out a request and return the content of ``"ok"``."""
        match request["do"]:
            case "load":
                return self._load(**{k: v for k, v in request.items() if k != "do"})
            case "run":
                return self._run(request["times"], request["untimed"])
            case "save":
                assert self._session is not None
                np.savez(request["path"], *self._session.run())
                return {}
            case unknown:
                raise AssertionError(f"unknown request {unknown!r}")

    def _load(
        self, engine: str, path: str, threads: int | None, inputs: str, streams: int | None = None
    ) -> JsonObject:
        arrays = load_inputs(inputs)
        start = time.perf_counter()
        if streams is None:
            self._session = ENGINES[engine](path, threads, arrays)
        else:
            assert threads is not None
            self._session = CONCURRENT[engine](path, threads, arrays, streams)
        seconds = time.perf_counter() - start
        # A collection in the middle of a run would be counted as the engine's time.
        gc.collect()
        gc.disable()
        session = self._session
        return {
            "version": session.version,
            "seconds": seconds,
            "outputs": session.outputs,
            "computes_in": session.computes_in,
            "streams": session.streams,
        }

    def _run(self, times: int, untimed: int) -> JsonObject:
        assert self._session is not None
        run, run_many = self._session.run, self._session.run_many
        if run_many is not None:
            run_many(untimed)
            start = time.perf_counter()
            made = run_many(max(times, LEAST_LAPS * self._session.streams))
            return {"seconds": [(time.perf_counter() - start) / made]}
        for _ in range(untimed):
            run()
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}


def serve(requests: IO[str], replies: IO[str]) -> None:
    server = Server()
    for line in requests:
        reply: JsonObject
        try:
            reply = {"ok": server.answer(json.loads(line))}
        except Exception as error:
            # Any exception of an engine is this contender's result, for the parent to report.
            words = " ".join(str(error).split())
            reply = {"error": f"{type(error).__name__}: {words}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, even while it is stopped."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    # Output of an engine must not land among the replies.
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
