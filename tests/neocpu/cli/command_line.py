"""Running the command line, and a small model to run it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command line."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error message, which has to be one line, the last one, without a traceback."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("neocpu: error: ")]
        assert len(lines) == 1, self.err
        assert self.err.endswith(f"{lines[0]}\n"), self.err
        return lines[0]

    @property
    def json(self) -> Any:
        """The document that the command line printed."""
        return json.loads(self.out)

    def fails(self, code: int, *words: str) -> Outcome:
        """Check that the command line failed with a code and an error of these words; return it."""
        assert self.code == code, self.err
        assert not [word for word in words if word not in self.error], self.error
        return self

    def succeeds(self) -> Outcome:
        """Check that the command line succeeded, and return it."""
        assert self.code == 0, self.err
        return self


Cli = Callable[..., Outcome]


def environment() -> dict[str, str]:
    """Return the environment in which a child finds the packages from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def imported(script: str) -> set[str]:
    """Return the modules that a program imports, and their packages."""
    command = [sys.executable, "-c", f"import sys; {script}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def slow_environment(temporary: Path) -> dict[str, str]:
    """Return the environment of a child to interrupt, with a folder for its temporary files.

    It finds no code of an earlier compilation, and so works long enough to be interrupted.
    """
    return {**environment(), "TMPDIR": str(temporary), "NEOCPU_CACHE_DIR": "off"}


def conv_model(
    channels: int = 3, filters: int = 8, size: int = 16, dims: list[Any] | None = None
) -> onnx.ModelProto:
    """Return ``features = relu(conv3x3(image))`` with random weights."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((filters, channels, 3, 3)).astype(np.float32)
    given = dims if dims is not None else [1, channels, size, size]
    result = [given[0], filters, *given[2:]]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weights"], ["sums"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["sums"], ["features"]),
        ],
        "conv",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(weights, "weights")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
