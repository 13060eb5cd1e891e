"""Contenders of a benchmark: one process each, stopped unless it is its turn.

Worker threads of inference engines spin for a while after a call. In one process, or in several
that run freely, they would take each other's time; a process stopped by a signal cannot.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import psutil

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.bench.engines.engines import CONVERTERS
from neocpu.foundation.closing import Closing
from neocpu.foundation.host import peak_memory
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.python_child import module_command
from neocpu.foundation.temporary import TemporaryFolder

OWN: Final = "neocpu"  # the label of neocpu, which is compared with its peers
OWN_FLOAT: Final = "neocpu-fp32"  # next to fewer bits; no peer
SIGNED: Final = "onnxruntime-s8s8"  # signed feature maps: see `quantised_forms.with_signed_maps`
NNCF: Final = "openvino-nncf"  # the label of OpenVINO on the model as its own quantiser makes it
CHILD: Final = tuple(module_command("neocpu.bench.engines.contender_process"))
REPLY_TIMEOUT: Final = 600.0


class ContenderError(RuntimeError):
    """A contender failed. The benchmark goes on without it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A contender that failed, and the reason in one line."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contender:
    label: str  # unique in the benchmark
    engine: str  # one of `neocpu.bench.engines.engines.ENGINES`, or of `CONCURRENT` there
    path: Path  # the artifact, or the ONNX model for a peer
    streams: int | None = None  # simultaneous calls, if it makes several; 0 lets the engine choose


def converted(contender: Contender, workspace: Path) -> Contender:
    """Return a contender with its model in its engine's format. Raises ContenderError.

    Conversion, which is not timed, is tried once for each ``workspace``.
    """
    if contender.engine not in CONVERTERS:
        return contender
    source = contender.path.resolve()
    try:
        version = f"{source}:{source.stat().st_mtime_ns}"
    except OSError as error:
        raise ContenderError(str(error)) from None
    folder = workspace / f"{contender.engine}-{hashlib.sha256(version.encode()).hexdigest()[:16]}"
    verdict = folder / "verdict"
    if not verdict.exists():
        folder.mkdir(parents=True, exist_ok=True)
        verdict.write_text(_convert(contender.engine, source, folder))
    if reason := verdict.read_text():
        raise ContenderError(reason)
    return replace(contender, path=folder)


def _convert(engine: str, source: Path, folder: Path) -> str:
    """Convert a model; return why it failed, or an empty string."""
    try:
        CONVERTERS[engine](source, folder)
    except Exception as error:
        # Any failure of a converter is this contender's result, and does not end the benchmark.
        return " ".join(str(error).split()) or type(error).__name__
    return ""


@dataclass(frozen=True, slots=True)
class Usage:
    """The time and memory that a contender's process has taken since it started."""

    cpu_seconds: float  # the CPU time of all its threads
    peak_rss: int  # its peak memory, in bytes; 0 if it has ended


class ContenderProcess(Closing):
    """The process of a contender, which runs during requests; `load_seconds` has the import too."""

    def __init__(
        self,
        contender: Contender,
        threads: int | None,
        inputs: Path,
        *,
        command: Sequence[str] = CHILD,
        timeout: float = REPLY_TIMEOUT,
    ) -> None:
        """Start the process, load the model, and stop the process. Raises ContenderError.

        threads: None leaves all options at the engine's defaults.
        inputs: a file that `neocpu.bench.engines.engine_session.save_inputs` wrote.
        """
        self.contender = contender
        self._timeout = timeout
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C reaches only the parent, which ends the child; a stopped child could not end.
            start_new_session=True,
        )
        at_once = {} if contender.streams is None else {"streams": contender.streams}
        try:
            loaded = self._ask(
                do="load",
                engine=contender.engine,
                path=str(contender.path),
                threads=threads,
                inputs=str(inputs),
                **at_once,
            )
        except BaseException:
            self.close()
            raise
        self.version: str = loaded["version"]
        self.load_seconds: float = loaded["seconds"]
        self.output_names: tuple[str, ...] = tuple(loaded["outputs"])
        self.computes_in: str = loaded["computes_in"]
        self.streams: int = loaded["streams"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, times: int, untimed: int = 0) -> tuple[float, ...]:
        """Return the seconds of each timed run; with streams, their mean. Raises ContenderError.

        untimed: runs before them, to wake threads and fill caches.
        """
        return tuple(self._ask(do="run", times=times, untimed=untimed)["seconds"])

    def outputs(self) -> tuple[AnyArray, ...]:
        """Run once and return the outputs in graph order. Raises ContenderError."""
        with TemporaryFolder("bench") as folder:
            path = Path(folder) / "outputs.npz"
            self._ask(do="save", path=str(path))
            with np.load(path) as archive:
                return tuple(archive[f"arr_{i}"] for i in range(len(archive.files)))

    def usage(self) -> Usage:
        """Return the time and memory of the process so far; zeros if it is known to have ended."""
        try:
            times = psutil.Process(self.pid).cpu_times()
            peak = peak_memory(self.pid)
        except (psutil.NoSuchProcess, OSError):
            return Usage(0.0, 0)
        return Usage(times.user + times.system, peak)

    def close(self) -> None:
        """End the process. May be repeated."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            # Closing flushes a request that a dead process never read.
            with suppress(BrokenPipeError):
                stream.close()

    def _ask(self, **request: Any) -> JsonObject:
        stdin = self._process.stdin
        assert stdin is not None
        os.kill(self.pid, signal.SIGCONT)
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise ContenderError(self._last_words()) from None
        line = self._read_line()
        self._stop()
        try:
            reply: JsonObject = json.loads(line)
            error = reply.get("error")
            ok: JsonObject = {} if error else reply["ok"]
        except (ValueError, AttributeError, KeyError):
            raise ContenderError(f"unintelligible reply {line[:80]!r}") from None
        if error:
            raise ContenderError(error)
        return ok

    def _read_line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        received = b""
        while not received.endswith(b"\n"):
            if not select.select([stdout], [], [], self._timeout)[0]:
                raise ContenderError(f"no answer within {self._timeout:g} s")
            part = os.read(stdout.fileno(), 1 << 16)
            if not part:
                raise ContenderError(self._last_words())
            received += part
        return received

    def _stop(self) -> None:
        """Stop all threads of the process, and wait until they have stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT leaves an exit for Popen to collect.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its end of the pipe"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"its process ended ({how})" + (f": {lines[-1]}" if lines else "")
