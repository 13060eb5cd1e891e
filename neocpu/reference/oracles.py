"""What a model's outputs should be, from the best source that can run it, and which one that was.

Numpy in float64 comes first, then numpy in float32, then ONNX Runtime where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.subgraphs import has_control_flow
from neocpu.reference import onnxruntime_oracle
from neocpu.reference.evaluator import Noise
from neocpu.reference.runner import run_reference

Array: TypeAlias = npt.NDArray[Any]
Outputs: TypeAlias = dict[str, Array]

REFERENCE: Final = "numpy in float64"
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


def find_truth(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Truth:
    """Run a model with the best oracle that can.

    Raises
    ------
    AccuracyError
        If none can.
    """
    reasons: list[str] = []
    if has_control_flow(model):
        reasons.append(f"{REFERENCE}: its If and Loop run in the types they declare")
    for each in _candidates(model, inputs, double=not reasons):
        try:
            outputs = each.truth()
        except Exception as error:  # an evaluator raises whatever numpy does
            reasons.append(f"{each.name}: {_first_line(error)}")
        else:
            return Truth(outputs, Oracle(each.name, "; ".join(reasons), each.single))
    raise AccuracyError(
        f"nothing can tell what this model computes ({'; '.join(reasons)}), so nothing was checked "
        "or written: install onnxruntime to have it compared with that, or pass --no-verify to "
        "compile it unchecked"
    )


def _candidates(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, double: bool
) -> Iterator[_Candidate]:
    # Overflow and what follows from it is the model's, and compared.
    run: Callable[..., Outputs] = np.errstate(all="ignore")(partial(run_reference, model, inputs))

    def single(noise: Noise | None) -> Outputs:
        return run(noise=noise)

    if double:
        yield _Candidate(REFERENCE, partial(run, double=True), single)
    yield _Candidate(SINGLE, run, single)
    try:
        name = f"ONNX Runtime {onnxruntime_oracle.version()}"
    except ImportError:
        return
    other = partial(onnxruntime_oracle.run_onnxruntime, model, inputs)
    yield _Candidate(
        name,
        partial(other, optimised=False),
        lambda noise: other(optimised=True) if noise is None else None,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
