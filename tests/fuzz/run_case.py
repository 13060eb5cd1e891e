"""Compile one case, run it, and judge the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import neocpu
from neocpu.foundation.errors import AccuracyError, ArtifactError, NeoCPUError
from neocpu.foundation.tensor_spec import group_rows
from neocpu.frontend.number_formats import widen_halves
from neocpu.schedules.vocabulary.target_parsing import host_target, missing_on_host, parse_target
from neocpu.verification.reference.comparison import compare
from neocpu.verification.reference.runner import run_reference
from tests.fuzz.case import Case, Outcome

Arrays = Mapping[str, np.ndarray]
_SLIGHTLY = 1 + 2.0**-21
"""A factor of the inputs that shows whether a result depends on a rounding."""


def run_case(case: Case, stage: Callable[[str], None]) -> Outcome:
    """Return the outcome of a case; report each step to ``stage``, because it may be the last.

    The caller has to notice a signal or an endless loop.
    """
    data = case.model.SerializeToString()
    stage("compile")
    try:
        compiled = neocpu.compile(data, **_settings(case))
    except AccuracyError as error:
        return _doubted(case, data, str(error), stage)
    except NeoCPUError as error:
        return _refused(case, error, stage)
    except Exception as error:
        return Outcome("traceback", _line(error), "compile")
    with compiled:
        return _computed(case, compiled, stage)


def _settings(case: Case) -> dict[str, Any]:
    # Without the tuning records, which take half a second to read.
    settings = {"threads": 1, **case.options, "only_databases": True}
    target, host = parse_target(settings.get("target", "host")), host_target()
    runs_here = target.machine == host.machine and not missing_on_host(target)
    return settings if runs_here else settings | {"target": "host"}


def _refused(case: Case, error: NeoCPUError, stage: Callable[[str], None]) -> Outcome:
    message = str(error)
    # A compiler that cannot load what it wrote is no refusal.
    is_own_fault = isinstance(error, ArtifactError) or "please report" in message
    if is_own_fault or "\n" in message or not message:
        return Outcome("traceback", f"{type(error).__name__}: {message!r}", "compile")
    stage("peer")
    accepted = not isinstance(run_peer(case.model, case.feeds), str)
    return Outcome("refused", f"{type(error).__name__}: {message}", "compile", accepted=accepted)


def _doubted(case: Case, data: bytes, message: str, stage: Callable[[str], None]) -> Outcome:
    """Return whether a model that the compiler found inexact really is."""
    stage("peer")
    peer = run_peer(case.model, case.feeds)
    if isinstance(peer, str):
        kind = "refused" if "cannot run" in message else "false alarm"
        return Outcome(kind, f"AccuracyError: {message}", "compile", [peer], accepted=False)
    stage("compile")
    with neocpu.compile(data, **_settings(case), verify=False) as compiled:
        found = _computed(replace(case, extreme=False), compiled, stage)
    if found.kind in ("equal", "peers differ"):
        return replace(found, kind="false alarm", detail=f"AccuracyError: {message}")
    return replace(found, notes=[*found.notes, message])


def _computed(case: Case, compiled: Any, stage: Callable[[str], None]) -> Outcome:
    stage("run")
    with compiled.module() as module:
        if strangers := {spec.name for spec in module.inputs} - set(case.feeds):
            return Outcome("unchecked", f"no data for {min(strangers)}", "run")
        try:
            actual = module.run(dict(case.feeds))
            strange = module.run(_extreme(case.feeds)) if case.extreme else None
        except Exception as error:
            return Outcome("traceback", _line(error), "run")
    rows = [
        [compiled.header.outputs[i].name for i in group]
        for group in group_rows(compiled.header.row_counts)
    ]
    stage("peer")
    outcome = _judge(case.model, case.feeds, actual, rows)
    if strange is None or outcome.failed:
        return outcome
    stage("peer, extreme data")
    other = _judge(case.model, _extreme(case.feeds), strange, rows)
    if other.kind in ("wrong", "unstable"):  # ONNX leaves open what IEEE leaves open
        return replace(outcome, notes=[*outcome.notes, f"extreme data: {other.detail}"])
    return outcome


def _judge(model: onnx.ModelProto, feeds: Arrays, actual: Arrays, rows: list[list[str]]) -> Outcome:
    """Compare with ONNX Runtime; where they differ, let the reference decide."""
    peer = run_peer(model, feeds)
    if isinstance(peer, str):
        return Outcome("unchecked", peer, accepted=False)
    peer = {name: _unclipped(array, actual.get(name)) for name, array in peer.items()}
    difference = _difference(actual, peer, rows)
    if not difference:
        return Outcome("equal", accepted=True)
    if _agrees_in_float32(model, feeds, actual, rows):
        return Outcome("peers differ", f"halves are float32: {difference}", accepted=True)
    rounded, truth = (_reference(model, feeds, double) for double in (False, True))
    if rounded is None or truth is None:
        return Outcome("wrong", difference, accepted=True)
    if not _difference(actual, truth, rows, rounded) or not _difference(actual, rounded, rows):
        return Outcome("peers differ", difference, accepted=True)
    if _difference(rounded, truth, rows) or _hangs_on_rounding(model, feeds, truth, rows):
        return Outcome("unstable", difference, accepted=True)
    if _difference(peer, truth, rows, rounded):
        return Outcome("unstable", f"three answers: {difference}", accepted=True)
    return Outcome("wrong", difference, accepted=True)


def _agrees_in_float32(
    model: onnx.ModelProto, feeds: Arrays, actual: Arrays, rows: list[list[str]]
) -> bool:
    """Return whether ONNX Runtime agrees if a model with halves is computed in float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    widen_halves(wide)
    peer = run_peer(wide, feeds) if wide != model else ""
    return not isinstance(peer, str) and not _difference(actual, peer, rows)


def _unclipped(theirs: np.ndarray, mine: np.ndarray | None) -> np.ndarray:
    """Return an array with infinities where ONNX Runtime's Clip without bounds took them away."""
    if mine is None or mine.shape != theirs.shape or theirs.dtype != np.float32:
        return theirs
    largest = np.finfo(np.float32).max
    return np.where(np.isinf(mine) & (theirs == np.copysign(largest, mine)), mine, theirs)


def _hangs_on_rounding(
    model: onnx.ModelProto, feeds: Arrays, truth: Arrays, rows: list[list[str]]
) -> bool:
    """Return whether inputs or constants that differ by a rounding give another result.

    Examples are floors of sums, and integers multiplied by the scale of a quantisation.
    """
    if len([node for node in model.graph.node if node.op_type != "Constant"]) < 2:
        return False
    rng = np.random.default_rng(0)
    up, down = _SLIGHTLY, 1 / _SLIGHTLY
    # A half rounds to even: up or down, not both. A result that is divided by its own largest
    # element does not change if all elements grow equally.
    for choice in ((up,), (down,), *[(up, down)] * 12):
        moved = {n: _moved(a, choice, rng) for n, a in feeds.items()}
        other = _reference(_with_moved_constants(model, choice, rng), moved, double=True)
        if other is not None and _difference(other, truth, rows):
            return True
    return False


def _with_moved_constants(
    model: onnx.ModelProto, factors: Sequence[float], rng: np.random.Generator
) -> onnx.ModelProto:
    """Return a model whose constants of floating point are `_moved`."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    tensors = [*moved.graph.initializer]
    tensors += [
        each.t for node in moved.graph.node if node.op_type == "Constant" for each in node.attribute
    ]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = _moved(numpy_helper.to_array(tensor), factors, rng)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return moved


def _moved(array: np.ndarray, factors: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Return floats each multiplied with one of ``factors``; others as they are."""
    if array.dtype.kind != "f":
        return array
    return array * rng.choice(np.array(factors, array.dtype), array.shape)


def _difference(
    actual: Arrays, expected: Arrays, rows: list[list[str]], rounded: Arrays | None = None
) -> str:
    """Return the difference of two sets of outputs; empty if they agree.

    ``rounded`` has the expected outputs as computed in float32.
    """
    if list(actual) != list(expected):
        return f"outputs {list(actual)} instead of {list(expected)}"
    for name, value in expected.items():
        mine = actual[name]
        if mine.dtype != value.dtype and value.dtype != np.float64:
            return f"'{name}' is {mine.dtype}, not {value.dtype}"
        if mine.shape != value.shape:
            return f"'{name}' has shape {mine.shape}, not {value.shape}"
    found = compare(actual, expected, rounded=[rounded] if rounded else [], row_groups=rows)
    if found.ok:
        return ""
    return f"'{found.worst_output}' by {found.max_abs_error:.3g}, {found.max_rel_error:.3g} of it"


def run_peer(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray] | str:
    """Return ONNX Runtime's outputs by name, or why it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        arrays = [np.asarray(result) for result in session.run(None, dict(feeds))]
    except Exception as error:
        return _line(error)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, arrays, strict=True))


def _reference(model: onnx.ModelProto, feeds: Arrays, double: bool) -> Arrays | None:
    try:
        with np.errstate(all="ignore"):
            return run_reference(model, feeds, double=double)
    except Exception:
        return None


def _extreme(feeds: Arrays) -> dict[str, np.ndarray]:
    """Return feeds sprinkled with the numbers that break things."""
    result = {}
    for name, array in feeds.items():
        draw = np.random.default_rng(len(name) + array.size)
        if array.dtype.kind == "f":
            odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40, -0.0, 2.0**31]
        elif array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            odd = [limits.min, limits.max, 0, min(1 << 20, limits.max), max(-9999, limits.min)]
        else:
            odd = [False, True]
        with np.errstate(all="ignore"):
            strange = np.array(odd).astype(array.dtype)[draw.integers(0, len(odd), array.shape)]
        result[name] = np.where(draw.random(array.shape) < 0.2, strange, array)
    return result


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
