"""Compile one model untuned, and measure it and each of its kernels, in a process of its own.

python -m tests.predictions.measured MODEL THREADS ROUNDS

Prints one JSON object: a `Measurement`.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import neocpu

WORST_SHOWN = 12


@dataclass(slots=True)
class Measurement:
    """What a model was predicted to take, and took.

    Attributes
    ----------
    predicted, median, fastest : float
        Seconds of a run.
    kernels : list of (str, str, int, float, float)
        Kernel, kind, calls, predicted seconds and those of the fastest rounds of each call.
    failure : str
        Why there is nothing.
    """

    name: str = ""
    predicted: float = 0.0
    median: float = 0.0
    fastest: float = 0.0
    kernels: list[tuple[str, str, int, float, float]] = field(default_factory=list)
    failure: str = ""

    def error(self, *, alone: bool) -> float:
        """Return by how much the prediction is off, of what was measured.

        Parameters
        ----------
        alone : bool
            Whether to compare the kernels' sums, each of its fastest rounds: others who use the
            machine make a whole run slower far more often than a kernel.
        """
        if not alone:
            return self.predicted / self.median - 1
        return sum(each[3] for each in self.kernels) / sum(each[4] for each in self.kernels) - 1

    def __str__(self) -> str:
        if self.failure:
            return f"{self.name}: {self.failure}"
        times = (self.predicted, self.median, self.fastest)
        predicted, median, fastest = (f"{1e3 * seconds:.2f} ms" for seconds in times)
        off = f"{self.error(alone=False):+.1%}"
        kernels = f"{self.error(alone=True):+.1%}"
        return (
            f"{self.name}: predicted {predicted}, takes {median} ({off}), at least {fastest}; "
            f"its kernels by themselves {kernels}"
        )


def kernels_of(plan: dict, calls: list) -> list[tuple[str, str, int, float, float]]:
    """Return each kernel, with what its calls were predicted to take and took."""
    took: dict[str, float] = defaultdict(float)
    for kernel, _, least, *_ in calls:
        took[kernel] += least
    return [
        (each["kernel"], each["kind"], each["calls"], each["cost_us"] / 1e6, took[each["kernel"]])
        for each in plan["kernels"]
        if each["kernel"] in took
    ]


def measure(model: str, threads: int, rounds: int) -> Measurement:
    """Compile a model with the records that ship, and run it."""
    with neocpu.compile(model, threads=threads, verify=False) as compiled:
        plan = compiled.plan
        command = [sys.executable, "-m", "neocpu.bench.profile.call_times", str(compiled.path)]
        command += [str(threads), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Measurement(
        Path(model).stem,
        plan["predicted_us"] / 1e6,
        found["seconds"],
        found["fastest"],
        kernels_of(plan, found["calls"]),
    )


def table(found: list[Measurement], *, alone: bool) -> str:
    """Return the errors over all models, of the worst ones, and by kind of kernel."""
    done = [each for each in found if not each.failure]
    if not done:
        return "nothing was measured"
    done.sort(key=lambda each: -abs(each.error(alone=alone)))
    errors = [each.error(alone=alone) for each in done]
    lines = [
        f"{len(done)} models: median error {statistics.median(map(abs, errors)):.1%}, "
        f"worst {errors[0]:+.1%} ({done[0].name}); {len(found) - len(done)} failed"
    ]
    lines += [
        f"  {each.error(alone=alone):+.1%} {each.name}: {1e3 * each.predicted:.2f} ms predicted"
        for each in done[:WORST_SHOWN]
    ]
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in done:
        for _, kind, _, predicted, took in each.kernels:
            kinds[kind][0] += predicted
            kinds[kind][1] += took
    lines.append("by kind of kernel, of the fastest rounds: predicted over measured, and its share")
    whole = sum(took for _, took in kinds.values())
    for kind, (predicted, took) in sorted(kinds.items(), key=lambda pair: -pair[1][1]):
        lines.append(f"  {kind}: {predicted / took:.2f}, {took / whole:.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(asdict(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
