"""A model in 8 bits, in the forms in which its engines run it best."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import onnx

from neocpu.bench.engines.contenders import NNCF, SIGNED, Contender
from neocpu.bench.engines.engines import ONNXRUNTIME, OPENVINO
from neocpu.bench.engines.signed_form import with_signed_maps

_log = logging.getLogger("neocpu")

_TIMEOUT: Final = 1800.0


def other_forms(
    source: Path,
    samples: Path,
    quantised: onnx.ModelProto,
    peers: Sequence[str],
    folder: Path,
) -> Iterator[Contender]:
    """Yield what peers may run faster than the quantised model, the same in other forms.

    Parameters
    ----------
    source : Path
        The float32 model.
    samples : Path
        What it was quantised with, an ``.npz``: of each input, samples along its first axis.
    folder : Path
        Where the forms are written.
    """
    if ONNXRUNTIME in peers and (signed := with_signed_maps(quantised)) is not None:
        path = folder / f"{source.stem}.s8s8.onnx"
        onnx.save(signed, path)
        yield Contender(SIGNED, ONNXRUNTIME, path)
    if OPENVINO in peers and importlib.util.find_spec("nncf") is not None:
        path = folder / f"{source.stem}.nncf.xml"
        if _quantised_by_nncf(source, samples, path):
            yield Contender(NNCF, OPENVINO, path)


def _quantised_by_nncf(source: Path, samples: Path, path: Path) -> bool:
    """Have NNCF write OpenVINO's own format; a process of its own keeps its many lines away."""
    program = (sys.executable, "-m", "neocpu.bench.engines.nncf_process")
    done = subprocess.run(
        [*program, source, samples, path], capture_output=True, text=True, timeout=_TIMEOUT
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        _log.warning("NNCF could not quantise %s, so %s is out: %s", source.name, NNCF, lines[-1])
    return done.returncode == 0
