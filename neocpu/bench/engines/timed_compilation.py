"""Compile in a separate process, and measure the user's time and the peak memory."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import onnx

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.python_child import module_command
from neocpu.frontend.checks.tensor_check import all_tensors

_PROGRAM: Final = tuple(module_command("neocpu", "compile", "--json"))
_ERROR: Final = "neocpu: error: "
_BY_EXIT_CODE: Final = {kind.exit_code: kind for kind in NeoCPUError.__subclasses__()}


class CompilationCrash(NeoCPUError):
    """The compiler ended without an error that a user could fix."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """The time and memory of compiling a model."""

    seconds: float  # the time of the whole command, from reading the model to writing the artifact
    peak_bytes: int  # peak memory of the compiling process, in bytes
    # Sizes of the ONNX file and of the artifact.
    model_bytes: int
    artifact_bytes: int


def compile_in_child(
    model: Path,
    artifact: Path,
    *,
    threads: int,
    goal: str = "latency",
    databases: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
    precision: str = "auto",
    max_error: float | None = None,
    calibrate: Path | None = None,
    target: str | None = None,
    verify: bool = False,
    on_progress: ProgressCallback = silent,
) -> Compilation:
    """Run ``neocpu compile``, for this machine unless a target is named, and wait for its end.

    A separate process keeps this one small, because later measurements would share its memory and
    threads. It also makes the peak that of a single compilation.

    Raises NeoCPUError: the command failed; the error has the same class and the same words.
    """
    command = [
        *_PROGRAM,
        str(model),
        "-o",
        str(artifact),
        "--goal",
        goal,
        "--threads",
        str(threads),
        "--precision",
        precision,
        *options,
        *(() if max_error is None else ("--max-error", str(max_error))),
        *(("--calibrate", str(calibrate)) if calibrate else ()),
        *(("--target", target) if target else ()),
        *(word for path in databases for word in ("--db", str(path))),
        *(() if verify else ("--no-verify",)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            last = _forward(process.stderr, on_progress)
            assert process.stdout is not None
            output = process.stdout.read()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise _error(process.returncode, last, model)
    report = json.loads(output)
    sizes = (_model_bytes(model), artifact.stat().st_size)
    return Compilation(float(report["seconds"]), int(report["peak_bytes"]), *sizes)


def _model_bytes(model: Path) -> int:
    """Bytes of a model's file, and of those beside it that hold its weights."""
    tensors = all_tensors(onnx.load(model, load_external_data=False))
    entries = (entry for tensor in tensors for entry in tensor.external_data)
    beside = {model.parent / entry.value for entry in entries if entry.key == "location"}
    return sum(path.stat().st_size for path in {model, *beside})


def _forward(stream: IO[str] | None, on_progress: ProgressCallback) -> str:
    """Pass lines of progress on until the process ends; return its last line."""
    assert stream is not None
    last = ""
    for line in stream:
        last = line.strip() or last
        if not last.startswith(_ERROR):
            on_progress(Progress("compile", detail=last.removeprefix("neocpu: ")))
    return last


def _error(code: int, last: str, model: Path) -> NeoCPUError:
    words = last.removeprefix(_ERROR) or "no message"
    if code in _BY_EXIT_CODE and last.startswith(_ERROR):
        return _BY_EXIT_CODE[code](words)
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    # The child's --debug is not ours.
    reason = words.partition("; run again with --debug")[0]
    return CompilationCrash(f"compiling {model.name} ended ({how}): {reason}")
