"""The use of a model in an environment's script: in its own process and by commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

_PROGRAM = Path(sys.executable).with_name("neocpu")
BUILD = Path("build").resolve()
#: Norm-wise, of networks with random weights in float32.
TOLERANCE = 1e-3


def in_one_process(
    model: Path, inputs: Mapping[str, Any], expected: Sequence[Any], **options: Any
) -> None:
    """Compile, load and run a model, from several threads too, beside what made it."""
    import neocpu

    artifact = model.with_suffix(".so")
    neocpu.compile(str(model), **options).export(artifact)
    with neocpu.load(artifact) as module, ThreadPoolExecutor(4) as threads:
        for made in threads.map(lambda _: module.run(dict(inputs)), range(8)):
            compare(model.name, list(made.values()), expected)


def compare(what: str, outputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare outputs with those of the library that the model comes from."""
    assert len(outputs) == len(expected), (len(outputs), len(expected))
    for ours, theirs in zip(outputs, expected, strict=True):
        theirs = np.asarray(theirs, "float64")
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        print(f"{what}: {theirs.shape}, norm-wise error {error:.1e}", flush=True)
        assert error < TOLERANCE


def on_the_command_line(model: Path) -> None:
    """Run the README's commands on a model of one input, and look at the installation."""
    name, (batch, *rest) = only_input(model)
    shape = f"{name}:{batch},{','.join(map(str, rest))}"
    artifact, samples, int8 = BUILD / "by_command.so", BUILD / "samples.npz", BUILD / "int8.onnx"
    rng = np.random.default_rng(0)
    np.savez(samples, **{name: rng.random((4 * batch, *rest), "float32")})
    neocpu("compile", model, "-o", artifact, "--shape", shape)
    neocpu("run", artifact, "--repeat", 3)
    neocpu("explain", artifact, "--html", BUILD / "page.html")
    neocpu("quantize", model, "--shape", shape, "--calibrate", samples, "-o", int8)
    neocpu("bench", "race", int8, "--vs", "onnxruntime", "--rounds", 2)
    neocpu("doctor")


def only_input(model: Path) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of a model's input, a dimension without extent as 1."""
    import onnx

    (value,) = onnx.load(model, load_external_data=False).graph.input
    extents = (max(dimension.dim_value, 1) for dimension in value.type.tensor_type.shape.dim)
    return value.name, tuple(extents)


def neocpu(*arguments: object) -> None:
    """Run a command line; one that fails has said why."""
    command = [str(_PROGRAM), *map(str, arguments)]
    print("$", *command, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
