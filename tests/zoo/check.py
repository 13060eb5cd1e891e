"""Compile one model and compare its outputs with ONNX Runtime's, in a separate process.

python -m tests.zoo.check MODEL.onnx [--verify]

It prints one JSON object: an `Outcome` without its name and exporter.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import neocpu
from neocpu.foundation.errors import NeoCPUError

TOLERANCE = 1e-3
"""The tolerance, relative to an output's largest value."""


@dataclass(slots=True)
class Outcome:
    """The outcome of one model.

    - `outcome`: ``agrees``, ``differs``, ``refused``, ``failed`` (any error that is not neocpu's),
      ``crashed``, ``late``, ``not exported``, or ``alone``: it runs, but not in ONNX Runtime.
    - `message`: the reason.
    - `error`: the largest difference from ONNX Runtime, relative to an output's largest value.
    - `seconds`, `verify_seconds`: the time of compiling without its check, and of the check.
    """

    name: str = ""
    exporter: str = ""
    outcome: str = ""
    message: str = ""
    error: float = 0.0
    seconds: float = 0.0
    verify_seconds: float = 0.0


def onnxruntime_session(path: Path) -> onnxruntime.InferenceSession:
    """Return the model in ONNX Runtime, without its messages."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest error, relative to the largest value."""
    if got.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    if wanted.dtype == bool or not np.array_equal(np.isfinite(got), np.isfinite(wanted)):
        return 0.0 if np.array_equal(got, wanted, equal_nan=wanted.dtype.kind == "f") else np.inf
    finite = np.isfinite(wanted)
    a, b = (each[finite].astype(np.float64) for each in (got, wanted))
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def check(path: Path, verify: bool) -> Outcome:
    """Compile, run and compare."""
    found = Outcome(outcome="failed")
    start = time.perf_counter()
    try:
        with neocpu.compile(path, verify=verify) as compiled:
            found.verify_seconds = compiled.seconds.get("verify", 0.0)
            found.seconds = time.perf_counter() - start - found.verify_seconds
            module = compiled.module()
            random = np.random.default_rng(0)
            feeds = {
                spec.name: random.random(spec.shape).astype(spec.dtype) for spec in module.inputs
            }
            got = module.run(feeds).values()
        found.outcome = "alone"
        wanted = onnxruntime_session(path).run(None, feeds)
    except NeoCPUError as error:
        found.outcome, found.message = "refused", str(error)
    except Exception:
        found.message = traceback.format_exc()[-600:]
    else:
        found.error = max(map(difference, got, wanted))
        found.outcome = "agrees" if found.error <= TOLERANCE else "differs"
    return found


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asdict(check(Path(sys.argv[1]), "--verify" in sys.argv))))
