"""A model in 8 bits, in the forms in which its engines run it best."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import onnx

from neocpu.bench.engines.contenders import NNCF, SIGNED, Contender
from neocpu.bench.engines.signed_form import with_signed_maps
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.python_child import module_command

_log = logging.getLogger("neocpu")

TIMEOUT: Final = 1800.0
"""Seconds that NNCF may take."""


def other_forms(
    source: Path,
    samples: Path,
    quantised: onnx.ModelProto,
    peers: Sequence[str],
    folder: Path,
    on_progress: ProgressCallback = silent,
) -> Iterator[Contender]:
    """Yield what peers may run faster than the quantised model, the same in other forms.

    source: the float32 model.
    samples: the samples of its quantisation, an ``.npz``: each input has them along its first axis.
    folder: the folder for the forms.
    """
    if ONNXRUNTIME in peers and (signed := with_signed_maps(quantised)) is not None:
        path = folder / f"{source.stem}.s8s8.onnx"
        onnx.save(signed, path)
        yield Contender(SIGNED, ONNXRUNTIME, path)
    if OPENVINO in peers and importlib.util.find_spec("nncf") is not None:
        on_progress(Progress("quantise", detail="by NNCF"))
        path = folder / f"{source.stem}.nncf.xml"
        if reason := _quantise_by_nncf(source, samples, path):
            _log.warning("NNCF could not quantise %s, so %s is out: %s", source.name, NNCF, reason)
        else:
            yield Contender(NNCF, OPENVINO, path)


def _quantise_by_nncf(source: Path, samples: Path, path: Path) -> str:
    """Have NNCF write OpenVINO's own format; return why it failed, or an empty string.

    A process of its own keeps its many lines away.
    """
    command = module_command("neocpu.bench.engines.nncf_process", source, samples, path)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"it took more than {TIMEOUT:g} s"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1] if done.returncode else ""
