"""The model under test in a benchmark, and the ONNX file that its peers run.

It is compiled in a separate process, whose time and memory are measured.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import onnx

from neocpu.bench.engines.contenders import OWN, OWN_FLOAT, Contender
from neocpu.bench.engines.engines import IN_BFLOAT16
from neocpu.bench.engines.quantised_forms import other_forms
from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.python_child import module_command
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend import models
from neocpu.frontend.checks.tensor_check import all_tensors
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.module import load

_PROGRAM: Final = tuple(module_command("neocpu", "compile", "--json"))
_ERROR: Final = "neocpu: error: "
# Other errors that end with the code of the base, of whichever modules are imported, are no kind.
_BY_EXIT_CODE: Final = {
    kind.exit_code: kind
    for kind in NeoCPUError.__subclasses__()
    if kind.exit_code != NeoCPUError.exit_code
}


class CompilationCrash(NeoCPUError):
    """The compiler ended without an error that a user could fix."""


@dataclass(frozen=True, slots=True)
class Compilation:
    seconds: float  # the time of the whole command, from reading the model to writing the artifact
    peak_bytes: int  # peak memory of the compiling process, in bytes
    model_bytes: int  # size of the ONNX file
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
    """Run ``neocpu compile``, for this machine unless a target is named. Raises its NeoCPUError.

    A process of its own keeps this one small for later measurements, and gives one peak.
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


CALIBRATION_SAMPLES: Final = 8  # random inputs for quantising a model that is only timed


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    header: ArtifactHeader  # the header of the artifact: name, target, inputs
    artifact: Path
    model: Path | None  # the ONNX model with static shapes, if it is known
    compilation: Compilation | None = None  # None if it was compiled before
    in_float: Path | None = None  # the artifact in float32, if the model is measured in fewer bits
    forms: tuple[Contender, ...] = ()  # peers that run other forms of the quantised model
    in_bfloat16: bool = False  # whether engines compute in bfloat16 where they can
    number: int = 0  # the number of the header's shapes in a set of shapes

    @property
    def is_quantised(self) -> bool:
        if self.model is None:
            return False
        graph = onnx.load(self.model, load_external_data=False).graph
        return any("Quantize" in node.op_type or "QLinear" in node.op_type for node in graph.node)

    @property
    def name(self) -> str:
        return self.header.name

    def contenders(self, peers: Sequence[str]) -> tuple[Contender, ...]:
        """Return neocpu and its peers. Raises UsageError: peers have no model."""
        own = [Contender(OWN, "neocpu", self.artifact)]
        if self.in_float is not None:
            own.append(Contender(OWN_FLOAT, "neocpu", self.in_float))
        if not peers:
            return tuple(own)
        model = self.require_model()
        engines = IN_BFLOAT16 if self.in_bfloat16 else {}
        others = (Contender(peer, engines.get(peer, peer), model) for peer in peers)
        return (*own, *others, *(form for form in self.forms if form.engine in peers))

    def require_model(self) -> Path:
        """Return the ONNX model. Raises UsageError: the model is not known."""
        if self.model is None:
            raise UsageError(
                f"{self.artifact} does not hold its ONNX model: name it with --model FILE.onnx"
            )
        return self.model


def names_artifact(model: str) -> bool:
    """Whether ``model`` has the name of an artifact, whether or not the file exists."""
    return Path(model).suffix == ".so"


def find_model(
    model: str,
    folder: Path,
    *,
    threads: int,
    shapes: InputShapes,
    databases: Sequence[str | os.PathLike[str]],
    source: str | None = None,
    verify: bool = True,
    precision: str | None = None,
    max_error: float | None = None,
    peers: Sequence[str] = (),
    on_progress: ProgressCallback = silent,
) -> MeasuredModel:
    """Open an artifact, compiled from ``source``, or compile a model. Raises NeoCPUError."""
    if not names_artifact(model):
        return compile_model(
            model,
            folder,
            threads=threads,
            shapes=shapes,
            databases=databases,
            verify=verify,
            precision=precision,
            max_error=max_error,
            peers=peers,
            on_progress=on_progress,
        )
    if precision is not None or max_error is not None:
        word = "--precision" if max_error is None else "--max-error"
        raise UsageError(f"{word} is for models; {model} computes as it was compiled")
    return open_artifact(Path(model), source, folder, shapes)


def open_artifact(
    artifact: Path, model: str | None, folder: Path, asked: InputShapes = NO_SHAPES
) -> MeasuredModel:
    """Open an artifact; `asked` selects one of its sets of shapes, by default the first.

    Raises ArtifactError or TargetError: the artifact is damaged or not for this machine.
    Raises ModelError or UsageError: the model cannot be read or differs, or shapes are missing.
    """
    with load(artifact, 1, verify=False) as module:  # `load` refuses artifacts of other machines
        every = module.metadata
    if asked and (not every.others or not asked.by_name):
        raise UsageError(f"--shape and --batch are for models; {artifact} has its shapes")
    header = every.of(asked.by_name)
    number = [each.inputs for each in every.each].index(header.inputs)
    if model is None:
        return MeasuredModel(header=header, artifact=artifact, model=None, number=number)
    shapes = InputShapes({spec.name: spec.shape for spec in header.inputs})
    try:
        return MeasuredModel(
            header=header, artifact=artifact, model=onnx_file(model, shapes, folder), number=number
        )
    except UsageError as error:
        raise UsageError(f"{model} is not what {artifact} was compiled from: {error}") from error


def compile_model(
    model: str,
    folder: Path,
    *,
    threads: int,
    shapes: InputShapes,
    databases: Sequence[str | os.PathLike[str]],
    verify: bool = True,
    precision: str | None = None,
    max_error: float | None = None,
    peers: Sequence[str] = (),
    on_progress: ProgressCallback = silent,
) -> MeasuredModel:
    """Compile a model for this machine, in a separate process. Raises NeoCPUError as `compile`.

    With a precision other than bf16, the model is quantised first unless it already is. Engines run
    that model, and ``peers`` their own forms too. With a limit on errors, peers run it unchanged.
    """
    source = onnx_file(model, shapes, folder)
    artifact = folder / "module.so"
    compiled = partial(
        compile_in_child,
        threads=threads,
        databases=databases,
        verify=verify,
        on_progress=on_progress,
    )

    def result(**found: Any) -> MeasuredModel:
        return MeasuredModel(header=read_header(artifact), artifact=artifact, **found)

    if precision is None and max_error is None:
        compilation = compiled(source, artifact)
        return result(model=source, compilation=compilation)
    in_float = folder / "float32.so"
    if precision is None or precision == "bf16":
        compiled(source, in_float, precision="fp32")
        how = {"precision": precision} if precision else {"max_error": max_error, "verify": True}
        compilation = compiled(source, artifact, **how)
        halves = precision is not None
        return result(model=source, compilation=compilation, in_float=in_float, in_bfloat16=halves)
    from neocpu.quantiser.quantise import quantize  # here, because it imports the compiler

    loaded = load_model(source)
    if any("Quantize" in node.op_type for node in loaded.simplified.graph.node):
        compilation = compiled(source, artifact, precision=precision)
        return result(model=source, compilation=compilation)
    data = folder / "calibration.npz"
    compiled(source, in_float, precision="fp32")
    inputs = [random_inputs(loaded.inputs, seed) for seed in range(CALIBRATION_SAMPLES)]
    samples = {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}
    np.savez(data, **samples)  # type: ignore[arg-type]
    quantised = folder / f"{source.stem}.int8.onnx"
    made = quantize(source, samples, threads=threads, on_progress=on_progress)
    made.save(quantised)
    forms = tuple(other_forms(source, data, made.proto, peers, folder, on_progress))
    # Only mixed precision needs the float32 model. All peers run the quantised one.
    own = (source, data) if precision == "auto" else (quantised, None)
    compilation = compiled(own[0], artifact, precision=precision, calibrate=own[1])
    return result(model=quantised, compilation=compilation, in_float=in_float, forms=forms)


def onnx_file(model: str, shapes: InputShapes, folder: Path) -> Path:
    """Return a file of ``model`` with static shapes. Raises ModelError or UsageError: none fits."""
    if models.is_name(model):
        path = folder / f"{model}.onnx"
        onnx.save(models.build_with_shapes(model, shapes), path)
        return path
    if not shapes:
        return Path(model)
    path = folder / Path(model).name
    onnx.save(load_model(model, shapes).original, path)
    return path
