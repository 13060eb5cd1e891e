"""A model in 8 bits, in the forms in which its engines run it best.

As a program, ``python -m … MODEL.onnx SAMPLES.npz OUT.xml``, it quantises by NNCF's defaults.
"""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.bench.engines.contenders import NNCF, SIGNED, Contender
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.python_child import module_command

_log = logging.getLogger("neocpu")

TIMEOUT: Final = 1800.0  # seconds that NNCF may take


def other_forms(
    source: Path,
    samples: Path,
    quantised: onnx.ModelProto,
    peers: Sequence[str],
    folder: Path,
    on_progress: ProgressCallback = silent,
) -> Iterator[Contender]:
    """Yield what peers may run faster, in other forms; `samples`: the ``.npz`` of quantisation."""
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
    """Have NNCF write OpenVINO's format, in a quiet process; return why it failed, or ""."""
    command = module_command("neocpu.bench.engines.quantised_forms", source, samples, path)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"it took more than {TIMEOUT:g} s"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1] if done.returncode else ""


_SHIFT = 128
_QUANTISING = ("QuantizeLinear", "DequantizeLinear")


def with_signed_maps(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a QDQ model with int8 in place of uint8; None if it has no uint8.

    Values and zero points are less by 128, so that they stand for the same numbers. `model` reads
    and returns real numbers, which stay as they are.
    """
    signed = onnx.ModelProto()
    signed.CopyFrom(model)
    graph = signed.graph
    zeros = {n.input[2] for n in graph.node if n.op_type in _QUANTISING and len(n.input) > 2}
    changed = False
    for each in graph.initializer:
        if each.name in zeros and each.data_type == onnx.TensorProto.UINT8:
            array = numpy_helper.to_array(each).astype(np.int16) - _SHIFT
            each.CopyFrom(numpy_helper.from_array(array.astype(np.int8), each.name))
            changed = True
    del graph.value_info[:]  # which may tell the types of before
    return signed if changed else None


def main(source: str, data: str, path: str) -> None:
    import nncf
    import openvino

    with np.load(data) as samples:
        arrays = dict(samples)
    model = openvino.Core().read_model(source)
    extents = {name: model.input(name).shape[0] for name in arrays}
    count = min(len(array) // extents[name] for name, array in arrays.items())
    inputs = [
        {name: each[i * extents[name] : (i + 1) * extents[name]] for name, each in arrays.items()}
        for i in range(count)
    ]
    made = nncf.quantize(model, nncf.Dataset(inputs), subset_size=count)
    openvino.save_model(made, path, compress_to_fp16=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
