"""The latency from a picture's bytes to the answer, prepared in the artifact or before it.

``python -m tests.picture_race [NETWORK] [--picture HxW] [--threads N]`` compiles a built-in network
twice: with pictures of bytes as its input, and unchanged. The first runs in turns with the second,
in one process; the second follows Pillow's or OpenCV's resizing and numpy's normalisation. The
program prints medians and, in brackets, the fastest call, which counts when others use the machine,
and the same for the preparation alone. OpenCV takes part if it is installed; so do ONNX Runtime and
OpenVINO, which run the network after that preparation, as is usual today.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

import neocpu
from neocpu.bench.engines.engine_session import Session
from neocpu.bench.engines.engines import load_onnxruntime, load_openvino
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO, install_hint, installed
from neocpu.frontend.models import build
from neocpu.frontend.processing.processing import Processing
from tests.text_models import text_model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FACTORS = (1 / (255 * np.array(STD))).astype(np.float32)
OFFSETS = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
IDLE_SECONDS = 0.05
"""The pause after which the other side's threads no longer spin on a CPU."""
Resizing = Callable[[np.ndarray, tuple[int, int]], np.ndarray]
Call = Callable[[], Any]


def resizings(threads: int) -> Mapping[str, Resizing]:
    """Return the installed libraries."""
    found: dict[str, Resizing] = {}
    try:
        from PIL import Image

        bilinear = Image.Resampling.BILINEAR
        found["pillow"] = lambda pixels, size: np.asarray(
            Image.fromarray(pixels).resize(size[::-1], bilinear)
        )
    except ModuleNotFoundError:
        print("without Pillow, which is not installed")
    try:
        import cv2

        cv2.setNumThreads(threads)
        found["opencv"] = lambda pixels, size: cv2.resize(
            pixels, size[::-1], interpolation=cv2.INTER_LINEAR
        )
    except ModuleNotFoundError:
        print("without OpenCV, which is not installed: pip install opencv-python-headless")
    return found


def peers(model: Path, threads: int, inputs: Mapping[str, np.ndarray]) -> dict[str, Session]:
    """Return the network in the other installed engines, in float32."""
    found = {}
    for engine, load in ((ONNXRUNTIME, load_onnxruntime), (OPENVINO, load_openvino)):
        if installed(engine):
            found[engine] = load(str(model), threads, inputs)
        else:
            print(f"without {engine}, which is not installed: {install_hint(engine)}")
    return found


def prepare(pixels: np.ndarray, resize: Resizing, out: np.ndarray) -> np.ndarray:
    """Write a network's input for a picture, in as few steps of numpy as possible."""
    scaled = resize(pixels, out.shape[2:]).astype(np.float32)
    scaled *= FACTORS
    scaled += OFFSETS
    out[0] = scaled.transpose(2, 0, 1)
    return out


def passing(name: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    """Return a model that returns its input, so that only the preparation takes time."""
    kind = f"float{[*shape]}"
    return text_model(f"passing ({kind} {name}) => ({kind} same) {{ same = Identity ({name}) }}")


def race(first: Call, second: Call, rounds: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return milliseconds of calls in turns: the median and the fastest of each side."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 5):
        for call, seconds in zip((first, second), times, strict=True):
            time.sleep(IDLE_SECONDS)
            call()
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    ours, theirs = (sorted(seconds[5:]) for seconds in times)
    return _milliseconds(ours), _milliseconds(theirs)


def _both(before: Call, run: Call) -> None:
    before()
    run()


def _milliseconds(seconds: list[float]) -> tuple[float, float]:
    return 1e3 * statistics.median(seconds), 1e3 * seconds[0]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.picture_race")
    parser.add_argument("network", nargs="?", default="mobilenet_v2")
    parser.add_argument("--picture", default="480x640", metavar="HxW")
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    height, width = map(int, asked.picture.split("x"))
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    model = build(asked.network)
    name = model.graph.input[0].name
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    size = shape[2], shape[3]
    print(f"{asked.network}, pictures of {asked.picture}, {asked.threads} threads, medians in ms\n")
    print("| resized as | what | in the artifact | before it | times as long | off by, of 255 |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    with TemporaryDirectory() as folder:

        def compiled(source: onnx.ModelProto, **processing: Any) -> neocpu.Module:
            path = Path(folder) / "model.so"
            with neocpu.compile(source, threads=asked.threads, verify=False, **processing) as made:
                made.export(path)
            return neocpu.load(path, threads=asked.threads)

        plain = compiled(model)
        image = np.empty(shape, np.float32)
        onnx.save(model, Path(folder) / "model.onnx")
        others = peers(Path(folder) / "model.onnx", asked.threads, {name: image})
        for library, resize in resizings(asked.threads).items():
            processing = Processing.parse(
                input=f"{name}={asked.picture}",
                resize=f"{size[0]}x{size[1]}:stretch:{library}",
                mean=MEAN,
                std=STD,
            )
            alone = compiled(passing(name, shape), processing=processing)
            whole = compiled(model, processing=processing)
            seen = alone.run({name: pixels[None]})["same"]
            steps = np.abs(seen - prepare(pixels, resize, image)) / FACTORS[:, None, None]
            entire = partial(whole, pixels[None])
            before = partial(prepare, pixels, resize, image)
            runs = {"the whole": lambda: plain(image)}
            runs |= {f"the whole, {each} in float32": peer.run for each, peer in others.items()}
            pairs = {"preparation": (partial(alone, pixels[None]), before)}
            pairs |= {what: (entire, partial(_both, before, run)) for what, run in runs.items()}
            for what, pair in pairs.items():
                ours, theirs = race(*pair, asked.rounds)
                ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
                cells = ("{:.2f} ({:.2f})".format(*each) for each in (ours, theirs, ratios))
                print(f"| {library} | {what} | {' | '.join(cells)} | {steps.max():.2f} |")


if __name__ == "__main__":
    main()
