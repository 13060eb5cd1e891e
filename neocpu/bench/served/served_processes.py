"""The two processes of a served benchmark besides the one of direct calls: server and clients."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import numpy as np

from neocpu.bench.engines.agreement import relative_error
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.python_child import module_command, program_command

NAME: Final = "model"
# The command line's own program, in a process that a stopped benchmark does not leave behind.
_SERVE: Final = """
from neocpu.bench.engines.contender_process import die_with_parent
from neocpu.cli.main import run
die_with_parent()
run()
"""
START_TIMEOUT: Final = 120.0
ANSWER_TIMEOUT: Final = 120.0  # seconds for an answer beyond the time for which clients work

AnyArray = np.ndarray[Any, Any]


class ServingError(NeoCPUError):
    """The server or its clients failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    seconds: tuple[float, ...]  # from first byte sent to last received, of counted requests
    per_answer: float  # seconds per counted request: the inverse of throughput
    answers: tuple[tuple[bytes, int], ...]  # distinct bodies, and the number of each
    others: int  # number of other answers
    failed: int  # number of answers with another status than 200
    cpu: float  # CPU seconds of clients per request


class ServerProcess:
    """``neocpu serve`` on a free port, stopped outside its context. Raises ServingError."""

    def __init__(self, artifact: Path, options: Sequence[str]) -> None:
        own = ("--name", NAME, "--port", "0", "--json")
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            program_command(_SERVE, "serve", artifact, *options, *own),
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        try:
            url = urlsplit(json.loads(_line(self._process.stdout, START_TIMEOUT))["url"])
        except (ValueError, TimeoutError):
            self._end()
            words = self._last_words()
            self.close()
            raise ServingError(f"neocpu serve {artifact} failed: {words}") from None
        assert url.hostname is not None
        assert url.port is not None
        self.address = (url.hostname, url.port)
        self._signal(signal.SIGSTOP)

    def __enter__(self) -> ServerProcess:
        """Let it run."""
        self._signal(signal.SIGCONT)
        return self

    def __exit__(self, *exception: Any) -> None:
        """Stop it again."""
        self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it. May be repeated."""
        self._end()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("neocpu: error: ") if lines else "it said nothing"


class ClientsProcess:
    """`neocpu.bench.served.served_load`, idle but for `load`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            module_command("neocpu.bench.served.served_load"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def load(self, address: tuple[str, int], request: Path, clients: int, duration: float) -> Load:
        """Let so many clients send requests for so long. Raises ServingError: one is cut off."""
        order = {
            "address": address,
            "request": str(request),
            "clients": clients,
            "duration": duration,
        }
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
            reply = json.loads(_line(self._process.stdout, duration + ANSWER_TIMEOUT))
        except (ValueError, OSError) as error:  # a time-out is one, a broken pipe another
            raise ServingError("the clients ended without a report") from error
        if "error" in reply:
            raise ServingError(f"a client lost its connection: {reply['error']}")
        answers = tuple((bytes.fromhex(body), count) for body, count in reply["answers"])
        failed = len(reply["failed"])
        seconds, others = tuple(reply["seconds"]), reply["others"]
        return Load(
            seconds=seconds,
            per_answer=reply["per_answer"],
            answers=answers,
            others=others,
            failed=failed,
            cpu=reply["cpu"],
        )

    def close(self) -> None:
        """End it. May be repeated."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def binary_request(inputs: Mapping[str, AnyArray]) -> bytes:
    from neocpu.serving.datatypes import DATATYPES

    tensors = [
        {
            "name": name,
            "datatype": DATATYPES[array.dtype.name],
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in inputs.items()
    ]
    document = {"inputs": tensors, "parameters": {"binary_data_output": True}}
    text = json.dumps(document).encode()
    data = [array.tobytes() for array in inputs.values()]
    head = (
        f"POST /v2/models/{NAME}/infer HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Length: {len(text) + sum(map(len, data))}\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\n\r\n"
    )
    return b"".join([head.encode(), text, *data])


def same_outputs(answer: bytes, outputs: Sequence[AnyArray], tolerance: float = 0.0) -> bool:
    """Return whether an answer ends in these outputs; `tolerance`: norm-wise, 0 compares bytes."""
    if answer.endswith(b"".join(array.tobytes() for array in outputs)):
        return True
    offset = len(answer) - sum(array.nbytes for array in outputs)
    if offset < 0 or tolerance == 0:
        return False
    found = []
    for array in outputs:
        found.append(np.frombuffer(answer, array.dtype, array.size, offset).reshape(array.shape))
        offset += array.nbytes
    return relative_error(found, outputs) <= tolerance


def _line(stream: IO[bytes] | None, timeout: float) -> bytes:
    assert stream is not None
    received = b""
    while not received.endswith(b"\n"):
        if not select.select([stream], [], [], timeout)[0]:
            raise TimeoutError
        part = os.read(stream.fileno(), 1 << 20)
        if not part:
            raise ValueError("no reply")
        received += part
    return received
