"""Compare predicted with measured latencies of many untuned models, and list large errors.

    python -m tests.predictions MODEL [MODEL ...] [-o results.jsonl]
    python -m tests.predictions --zoo PYTHON [--only WORD] [-o results.jsonl]
    python -m tests.predictions --own --fit [-o results.jsonl]

MODEL is an ONNX file or the name of a built-in network. ``--zoo`` exports architectures of other
packages in another environment's PYTHON, as `tests.zoo` does. Models in the results file are not
measured again. A summary follows: the median and the worst error, and the errors by kind of kernel.
On a shared machine ``--alone`` compares the sums of kernels, each by its fastest rounds.

``--fit`` fits this CPU's rates to all results in the file, and writes them to
``foundation/network_rates.py``: ``--own`` measures built-in networks, with and without records, and
transformers, also in 8 and in 16 bits, on a quiet machine in twenty minutes. The rates of a new
CPU's caches and memory are measured first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import host_target
from tests.predictions.fit import Fit, company, measured_rates, write
from tests.predictions.measured import Measurement, table
from tests.predictions.transformer import TRANSFORMERS, transformer
from tests.zoo.architectures import ARCHITECTURES
from tests.zoo.exports import exports, keep, kept

SECONDS = 900
NETWORKS = (
    *("resnet18", "resnet50", "densenet121", "inception_v3", "vgg11", "mobilenet_v1"),
    *("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "squeezenet1_0", "unet"),
    *("shufflenet_v2_x1_0", "resnext50_32x4d", "yolov3_tiny"),
)
"""Built-in networks to which the rates of a CPU are fitted, without tuning records."""
NARROW = (
    *("resnet18", "resnet50", "densenet121", "inception_v3", "vgg11", "mobilenet_v1"),
    *("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "unet", "shufflenet_v2_x1_0"),
)
"""Networks that are also measured in 8 and in 16 bits."""
ON_RECORD = ("resnet50", "mobilenet_v2", "densenet121", "shufflenet_v2_x1_0")
"""Networks that are also measured with the shipped records."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    model: str
    name: str
    precision: str = "auto"
    estimated: bool = False


def measured(one: MeasuredModel, threads: int, rounds: int) -> Measurement:
    """Compile and measure one model in a child process, which may crash."""
    name, command = one.name, [sys.executable, "-m", "tests.predictions.measured", one.model]
    command += [str(threads), str(rounds), one.precision, *["--estimated"] * one.estimated]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Measurement(name, failure=f"not done after {SECONDS} s")
    if done.returncode:
        return Measurement(name, failure=(done.stderr.strip().splitlines() or ["died"])[-1][:200])
    return Measurement(**json.loads(done.stdout.splitlines()[-1]) | {"name": name})


def zoo(python: str, only: str, done: set[str]) -> Iterator[MeasuredModel]:
    """Export architectures; yield each while its file exists."""
    left = [each for each in ARCHITECTURES if only in each.name and each.name not in done]
    for name, path, _ in exports(python, "torchscript", left):
        if path is not None:
            yield MeasuredModel(str(path), name)


def own_networks(folder: Path) -> Iterator[MeasuredModel]:
    """Yield built-in networks, and transformers, without records; and some with them."""
    for name in NETWORKS:
        yield MeasuredModel(name, f"{name}, estimated", estimated=True)
    for width, tokens in TRANSFORMERS:
        path = folder / f"transformer-{width}-{tokens}.onnx"
        onnx.save(transformer(width, tokens), path)
        yield MeasuredModel(str(path), path.stem, estimated=True)
        name = f"{path.stem}, bf16"
        yield MeasuredModel(str(path), name, precision="bf16", estimated=True)
    for name, precision in itertools.product(NARROW, ("int8", "bf16")):
        yield MeasuredModel(name, f"{name}, {precision}", precision=precision, estimated=True)
    for name in ON_RECORD:
        yield MeasuredModel(name, name)


def fit(found: list[Measurement], target: CpuTarget, threads: int, *, alone: bool) -> None:
    """Fit the rates of a CPU, write them, and print the errors of predictions with them."""
    rates, done = NETWORK_RATES[target.mcpu], [each for each in found if not each.failure]
    together = 1.0 if alone else company(done)
    fitting = Fit(done, target, threads, together)
    best = fitting.best(rates)
    path = write({**NETWORK_RATES, target.mcpu: best})
    print(f"a run takes {together:.3f} times as long as its kernels' fastest rounds")
    for text, each in (("before", rates), ("fitted", best)):
        off = sorted(abs(ratio - 1) for ratio in fitting.errors(each))
        print(f"{text}: median error {statistics.median(off):.1%}, worst {off[-1]:.1%}")
    print(f"wrote {target.mcpu} to {path}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.predictions")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--zoo", metavar="PYTHON")
    parser.add_argument("--own", action="store_true", help="measure networks that are built in")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--alone", action="store_true", help="compare kernels' fastest rounds")
    parser.add_argument("--fit", action="store_true", help="find the rates of this CPU")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/predictions.jsonl"))
    options = parser.parse_args()
    found = {each.name: each for each in kept(options.output, Measurement)}
    target = host_target()
    if options.fit and target.mcpu not in NETWORK_RATES:
        NETWORK_RATES[target.mcpu] = measured_rates(target, options.threads)
        write(NETWORK_RATES)  # for the processes that compile
    with tempfile.TemporaryDirectory() as folder:
        models = itertools.chain(
            (MeasuredModel(os.fspath(model), Path(model).stem) for model in options.models),
            zoo(options.zoo, options.only, set(found)) if options.zoo else (),
            own_networks(Path(folder)) if options.own else (),
        )
        for one in models:
            if one.name in found:
                continue
            found[one.name] = measured(one, options.threads, options.rounds)
            print(found[one.name], flush=True)
            keep(options.output, found[one.name])
    print(table(list(found.values()), alone=options.alone))
    if options.fit:
        fit(list(found.values()), target, options.threads, alone=options.alone)


if __name__ == "__main__":
    main()
