"""How exact networks are at every level of accuracy, beside ONNX Runtime, against float64."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neocpu.bench.engines.contenders import Contender, ContenderError, ContenderProcess
from neocpu.bench.engines.engine_session import AnyArray, Inputs
from neocpu.bench.engines.engines import installed
from neocpu.bench.engines.inputs_file import save_inputs
from neocpu.bench.engines.measured_model import onnx_file
from neocpu.bench.engines.timed_compilation import compile_in_child
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.foundation.units import json_number
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.schedules.vocabulary.accuracy import LEVELS
from neocpu.verification.reference.comparison import compare
from neocpu.verification.reference.runner import run_reference

_log = logging.getLogger("neocpu")

PEER: Final = "onnxruntime"
"""Whose errors stand beside neocpu's, if it is installed."""


@dataclass(frozen=True, slots=True)
class AccuracyRequest:
    """What to compile for: as in `neocpu.compile`."""

    threads: int
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """Norm-wise errors of one network's outputs, the largest of each.

    Attributes
    ----------
    errors : dict of str to float
        Of neocpu, by level of accuracy; infinite where outputs do not compare.
    peer : float or None
        ONNX Runtime's; None if it is not installed or cannot run the network.
    """

    name: str
    errors: dict[str, float]
    peer: float | None

    @property
    def missed(self) -> tuple[str, ...]:
        """The levels whose bound the network exceeds."""
        return tuple(name for name, error in self.errors.items() if error > LEVELS[name].bound)

    def __str__(self) -> str:
        words = [f"{name} {error:.1e}" for name, error in self.errors.items()]
        return f"{self.name}: {', '.join(words)}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        errors = {name: json_number(error) for name, error in self.errors.items()}
        peer = json_number(self.peer)
        return {"model": self.name, "errors": errors, PEER: peer, "missed": list(self.missed)}


def measure_accuracy(
    models: Sequence[str], request: AccuracyRequest, on_progress: ProgressCallback = silent
) -> Iterator[AccuracyReport | ModelFailure]:
    """Compile each model at every level, run it on random inputs, and yield its errors.

    Parameters
    ----------
    models : sequence of str
        ``.onnx`` files or built-in names.
    """

    def measure(number: int, model: str) -> AccuracyReport:
        on_progress(Progress("accuracy", number, len(models), model))
        with TemporaryFolder("bench") as folder:
            return _measure(model, request, Path(folder))

    return measure_each(models, measure)


def _measure(model: str, request: AccuracyRequest, folder: Path) -> AccuracyReport:
    source = onnx_file(model, request.shapes, folder)
    loaded = load_model(source)
    inputs = random_inputs(loaded.inputs, seed=0)
    truth = run_reference(loaded.original, inputs, double=True)
    saved = folder / "inputs.npz"
    save_inputs(saved, inputs)

    def error(contender: Contender) -> float:
        with ContenderProcess(contender, request.threads, saved) as process:
            return _norm_error(loaded, process.outputs(), truth)

    errors = {}
    for level in LEVELS:
        path = folder / f"{level}.so"
        # Unverified: the error of a level that misses its bound belongs into the table too.
        compile_in_child(
            source, path, threads=request.threads, databases=request.databases, accuracy=level
        )
        errors[level] = error(Contender("neocpu", "neocpu", path))
    peer = None
    if installed(PEER):
        try:
            peer = error(Contender(PEER, PEER, source))
        except ContenderError as reason:
            _log.debug("%s cannot run %s: %s", PEER, model, reason)
    return AccuracyReport(Path(model).stem, errors, peer)


def _norm_error(loaded: LoadedModel, outputs: Sequence[AnyArray], truth: Inputs) -> float:
    actual = dict(zip(truth, outputs, strict=True))
    return compare(actual, truth, row_groups=loaded.row_groups).norm_error
