"""Predicted against measured latency of many models, untuned, and where a prediction is off.

    python -m tests.predictions MODEL [MODEL ...] [-o results.jsonl]
    python -m tests.predictions --zoo PYTHON [--only WORD] [-o results.jsonl]

MODEL is an ONNX file or the name of a built-in network. ``--zoo`` exports architectures of other
packages in another environment's PYTHON, as `tests.zoo` does. What OUT already has is not measured
again. At the end: the median and the worst error, and the errors by kind of kernel. On a machine
that others use, ``--alone`` compares the sums of kernels, each of its fastest rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.predictions.measured import Measurement, table
from tests.zoo.architectures import ARCHITECTURES
from tests.zoo.exports import exports
from tests.zoo.kept_results import keep, kept

SECONDS = 900


def measured(model: str, name: str, threads: int, rounds: int) -> Measurement:
    """Compile and measure one model in a process that may die of it."""
    command = [sys.executable, "-m", "tests.predictions.measured", model, str(threads)]
    command.append(str(rounds))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Measurement(name, failure=f"not done after {SECONDS} s")
    if done.returncode:
        return Measurement(name, failure=(done.stderr.strip().splitlines() or ["died"])[-1][:200])
    return Measurement(**json.loads(done.stdout.splitlines()[-1]) | {"name": name})


def zoo(python: str, only: str, done: set[str]) -> Iterator[tuple[str, str]]:
    """Export architectures; yield the file and name of each while it is there."""
    left = [each for each in ARCHITECTURES if only in each.name and each.name not in done]
    for name, path, _ in exports(python, "torchscript", left):
        if path is not None:
            yield str(path), name


def main() -> None:
    """Do what the module's text says."""
    parser = argparse.ArgumentParser(prog="python -m tests.predictions")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--zoo", metavar="PYTHON")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--alone", action="store_true", help="compare kernels' fastest rounds")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/predictions.jsonl"))
    options = parser.parse_args()
    found = {each.name: each for each in kept(options.output, Measurement)}
    given = [(os.fspath(model), Path(model).stem) for model in options.models]
    more = zoo(options.zoo, options.only, set(found)) if options.zoo else iter(())
    for model, name in itertools.chain(given, more):
        if name in found:
            continue
        found[name] = measured(model, name, options.threads, options.rounds)
        print(found[name], flush=True)
        keep(options.output, found[name])
    print(table(list(found.values()), alone=options.alone))


if __name__ == "__main__":
    main()
