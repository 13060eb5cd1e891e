"""What a model's outputs should be, from the best source that can run it, and which one that was.

Numpy in float64 comes first, then numpy in float32, then ONNX Runtime where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import onnx

from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.units import duration
from neocpu.frontend.source import first_line
from neocpu.verification.reference import onnxruntime_oracle
from neocpu.verification.reference.custom_operators import custom_operators_of
from neocpu.verification.reference.evaluator import Noise
from neocpu.verification.reference.predicted_time import predicted_seconds
from neocpu.verification.reference.runner import image_count, run_reference
from neocpu.verification.reference.verdict import REFERENCE

Outputs: TypeAlias = dict[str, Array]

SINGLE: Final = "numpy in float32"


@dataclass(frozen=True, slots=True)
class Oracle:
    """What computed the outputs that a module is compared with.

    Attributes
    ----------
    name : str
        Such as ``ONNX Runtime 1.22.0``.
    reason : str
        Why it is no better one; empty of the best.
    single : callable
        Take a `Noise` or None; run the model in float32, otherwise rounded than the truth is. None
        where there is no such way to round.
    """

    name: str
    reason: str
    single: Callable[[Noise | None], Outputs | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """The outputs, and where they are from."""

    outputs: Outputs
    oracle: Oracle


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    truth: Callable[[], Outputs]
    single: Callable[[Noise | None], Outputs | None]


def find_truth(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    instead: str = "pass --no-verify to compile it unchecked",
) -> Truth:
    """Run a model with the best oracle that can; what to do instead is said where none can.

    Raises
    ------
    AccuracyError
        If none can.
    """
    reasons: list[str] = []
    candidates = [*_in_numpy(model, inputs), *_elsewhere(model, inputs)]
    for each in candidates:
        try:
            outputs = each.truth()
        except Exception as error:  # an evaluator raises whatever numpy does
            reasons.append(f"{each.name}: {first_line(error)}")
        else:
            return Truth(outputs, Oracle(each.name, _joined(reasons), each.single))
    more = (
        "" if len(candidates) > 2 or _is_ours(model) else "install onnxruntime to compare with, or "
    )
    raise AccuracyError(
        f"nothing can tell what this model computes ({_joined(reasons)}), so nothing was checked "
        f"or written: {more}{instead}"
    )


def find_truth_soon(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    patience: float,
    shapes: Mapping[str, tuple[int, ...]],
) -> Truth | None:
    """Run a model with a quicker oracle; None if the best one is quick enough, or the only one.

    Parameters
    ----------
    patience : float
        Seconds that the best oracle may take. numpy in float32 takes half as long.
    shapes : mapping of str to tuple of int
        Of the model's tensors, as far as they are known.
    """
    seconds = predicted_seconds(model, image_count(model, inputs), shapes)
    if seconds <= patience:
        return None
    reason = f"{REFERENCE} would take about {duration(seconds)}"
    _, single = _in_numpy(model, inputs)
    others = [*_elsewhere(model, inputs)] if seconds / 2 > patience else []
    for each in (*others, single):
        try:
            return Truth(each.truth(), Oracle(each.name, reason, each.single))
        except Exception:  # whatever it raises: the best oracle is still to be asked
            continue
    return None


def _joined(reasons: Sequence[str]) -> str:
    """Return the reasons, in short where numpy fails in one way at every precision."""
    double, single = (f"{name}: " for name in (REFERENCE, SINGLE))
    if len(reasons) > 1 and reasons[0].replace(double, single) == reasons[1]:
        reasons = [reasons[0].replace(double, "numpy: "), *reasons[2:]]
    return "; ".join(reasons)


def _in_numpy(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Iterator[_Candidate]:
    run: Callable[..., Outputs] = partial(run_reference, model, inputs)

    def single(noise: Noise | None) -> Outputs:
        return run(noise=noise)

    yield _Candidate(REFERENCE, partial(run, double=True), single)
    yield _Candidate(SINGLE, run, single)


def _elsewhere(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Iterator[_Candidate]:
    try:
        name = f"ONNX Runtime {onnxruntime_oracle.version()}"
    except ImportError:
        return
    if _is_ours(model):
        return
    other = partial(onnxruntime_oracle.run_onnxruntime, model, inputs)
    yield _Candidate(
        name,
        partial(other, optimised=False),
        lambda noise: other(optimised=True) if noise is None else None,
    )


def _is_ours(model: onnx.ModelProto) -> bool:
    """Whether a model has operators that only packages for neocpu know."""
    return bool(custom_operators_of(model))
