"""One plan for any size beside plans for each size, and beside other engines at each size.

    python -m tests.size_race MODEL.onnx --shape x:1,3,320..1280/32,320..1280/32
        [--typical 1,3,640,640] [--sizes 20] [--rounds 6] [--pictures 1000] [--threads 2]

At the typical sizes and at others that are drawn, it runs in turns, each in a process of its own:
the artifact for all sizes, one for this size alone, and ONNX Runtime and OpenVINO in float32 with a
model of this size alone. It prints medians, the time of the size's own plan and the fastest
engine's in units of the first, and the geometric means and the least of these ratios.

With ``--pictures``, so many inputs of random sizes follow each other, in turns of `TURN`, in one
artifact and in each engine with the model as it is: new sizes and all they cost count.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

import neocpu
from neocpu.bench.engines.contenders import OWN, Contender, ContenderProcess
from neocpu.bench.engines.engine_session import save_inputs
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO, import_onnxruntime, installed
from neocpu.runtime.artifact import read_header
from neocpu.runtime.sized_form import SizedForm

ALONE = "alone"
"""The label of the artifact for one size."""
RUNS, UNTIMED = 5, 2
"""Timed runs of a contender's turn, and those before them."""
TURN = 50
"""Pictures of an engine's turn."""
LARGEST_ERROR = 1e-3
"""The largest difference from ONNX Runtime's outputs, of their norm, that is no fault."""

Shape = tuple[int, ...]
Call = Callable[[np.ndarray], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of one input, and the artifact for all its sizes."""

    path: Path
    artifact: Path
    threads: int

    @property
    def name(self) -> str:
        return read_header(self.artifact).inputs[0].name

    @property
    def form(self) -> SizedForm:
        form = read_header(self.artifact).sized
        assert form is not None, f"{self.artifact} is for fixed sizes"
        return form

    def shapes(self, count: int, seed: int) -> list[Shape]:
        """Return the input's shape at the typical sizes, and at ``count`` others."""
        rng, form = random.Random(seed), self.form
        drawn = [tuple(size.typical for size in form.sizes)]
        drawn += [
            tuple(rng.randrange(size.least, size.most + 1, size.step) for size in form.sizes)
            for _ in range(count)
        ]
        return [form.shapes(sizes, form.inputs)[0] for sizes in drawn]


def compile_to(path: Path, model: Path, threads: int, *options: str) -> None:
    command = [sys.executable, "-m", "neocpu", "compile", str(model), "-o", str(path), "-q"]
    subprocess.run([*command, "--threads", str(threads), *options], check=True)


def fixed(model: Path, name: str, shape: Shape, to: Path) -> Path:
    """Write a model whose input has this shape alone."""
    proto = onnx.load(model)
    (value,) = (each for each in proto.graph.input if each.name == name)
    for dim, extent in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        dim.Clear()
        dim.dim_value = extent
    del proto.graph.value_info[:]
    onnx.save(proto, to)
    return to


def picture(shape: Shape) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def race(model: Model, shape: Shape, rounds: int, folder: Path) -> Mapping[str, float]:
    """Return the median seconds of each contender for an input of this shape."""
    dims = ",".join(map(str, shape))
    alone, inputs = folder / "alone.so", folder / "inputs.npz"
    compile_to(alone, model.path, model.threads, "--shape", f"{model.name}:{dims}")
    save_inputs(inputs, {model.name: picture(shape)})
    peers = [engine for engine in (ONNXRUNTIME, OPENVINO) if installed(engine)]
    own = fixed(model.path, model.name, shape, folder / "fixed.onnx")
    contenders = [
        Contender(OWN, "neocpu", model.artifact),
        Contender(ALONE, "neocpu", alone),
        *(Contender(engine, engine, own) for engine in peers),
    ]
    processes = [ContenderProcess(each, model.threads, inputs) for each in contenders]
    try:
        check(processes, dims)
        seconds: dict[str, list[float]] = {each.label: [] for each in contenders}
        for _ in range(rounds):
            for process in random.sample(processes, len(processes)):
                seconds[process.contender.label] += process.run(RUNS, UNTIMED)
        return {label: statistics.median(found) for label, found in seconds.items()}
    finally:
        for process in processes:
            process.close()


def check(processes: Sequence[ContenderProcess], dims: str) -> None:
    """Say where outputs are not those of ONNX Runtime."""
    outputs = {each.contender.label: each.outputs() for each in processes}
    for one, wanted in zip(outputs[OWN], outputs.get(ONNXRUNTIME, ()), strict=False):
        error = np.linalg.norm(one - wanted) / max(float(np.linalg.norm(wanted)), 1e-30)
        if not error <= LARGEST_ERROR:
            print(f"{dims}: differs from ONNX Runtime by {error:.2g}")


def ratios(found: Mapping[str, float]) -> tuple[float, float]:
    """Return the time of the size's own plan, and the fastest engine's, in units of ours."""
    peers = [seconds for label, seconds in found.items() if label not in (OWN, ALONE)]
    return found[ALONE] / found[OWN], min(peers) / found[OWN] if peers else float("nan")


def stream(model: Model, count: int) -> Mapping[str, float]:
    """Return the seconds of inputs of random sizes, in turns."""
    inputs = [picture(shape) for shape in model.shapes(count, seed=1)[1:]]
    calls: dict[str, Call] = {OWN: neocpu.load(model.artifact, model.threads)}
    if installed(ONNXRUNTIME):
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = model.threads
        session = onnxruntime.InferenceSession(
            str(model.path), options, providers=["CPUExecutionProvider"]
        )
        calls[ONNXRUNTIME] = lambda x: session.run(None, {model.name: x})
    if installed(OPENVINO):
        import openvino

        hints = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": model.threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        request = openvino.Core().compile_model(str(model.path), "CPU", hints)
        request = request.create_infer_request()
        calls[OPENVINO] = lambda x: request.infer([x])
    seconds = dict.fromkeys(calls, 0.0)
    for first in range(0, count, TURN):
        for label, call in calls.items():
            begun = time.perf_counter()
            for each in inputs[first : first + TURN]:
                call(each)
            seconds[label] += time.perf_counter() - begun
    return seconds


def shown(seconds: Mapping[str, float], scale: float, unit: str) -> str:
    return ", ".join(f"{label} {scale * each:.2f} {unit}" for label, each in seconds.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.size_race")
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", required=True, help="as of neocpu compile, with ranges")
    parser.add_argument("--typical", help="as of neocpu compile")
    parser.add_argument("--sizes", type=int, default=20, help="drawn besides the typical ones")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pictures", type=int, default=0, help="of a stream of random sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    asked = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = Model(path=asked.model, artifact=folder / "any.so", threads=asked.threads)
        typical = ("--typical", asked.typical) if asked.typical else ()
        begun = time.perf_counter()
        compile_to(model.artifact, model.path, model.threads, "--shape", asked.shape, *typical)
        took = time.perf_counter() - begun
        print(f"compiled in {took:.1f} s, {model.artifact.stat().st_size / 1e6:.1f} MB", flush=True)
        found = []
        for shape in model.shapes(asked.sizes, asked.seed):
            seconds = race(model, shape, asked.rounds, folder)
            found.append(ratios(seconds))
            dims = "x".join(map(str, shape))
            alone, peer = found[-1]
            line = f"{dims}: {shown(seconds, 1e3, 'ms')}; alone {alone:.2f}, peers {peer:.2f}"
            print(line, flush=True)
        for label, each in zip(("alone", "peers"), zip(*found, strict=True), strict=True):
            mean = statistics.geometric_mean(each)
            print(f"{label}: typical {each[0]:.2f}, mean {mean:.3f}, least {min(each):.2f}")
        if asked.pictures:
            seconds = stream(model, asked.pictures)
            ours = seconds[OWN]
            others = {label: each / ours for label, each in seconds.items() if label != OWN}
            print(
                f"{asked.pictures} pictures: {shown(seconds, 1, 's')}; {shown(others, 1, 'times')}"
            )


if __name__ == "__main__":
    main()
