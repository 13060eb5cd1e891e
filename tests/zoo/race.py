"""Race architectures of other packages, without tuning, against other engines.

    python -m tests.zoo.race PYTHON [--only WORD] [--rounds N] [--kept FOLDER]
                             [-o races.jsonl] [--document OUT.md]

PYTHON is the environment that ``python -m tests.zoo`` asks for. Every model is raced by ``neocpu
bench race`` on a quiet machine; results in the file are not raced again. The document is a table of
all results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from neocpu.foundation.machine.cpu_identity import host_cpu
from tests.zoo.architectures import ARCHITECTURES
from tests.zoo.exports import exports, keep, kept

PEERS = ("onnxruntime", "openvino")
RACE_SECONDS = 600
BOUND = 0.1
"""The share of a prediction that data may make needless; above it, the prediction is a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The race of one model against other engines.

    - `name`: the architecture's name.
    - `milliseconds`: the median of neocpu's calls; 0 if it was not raced.
    - `peers`: calls of others, in milliseconds.
    - `ratio`, `low`, `high`: the fastest peer's latency divided by ours, and the 95 % interval of
      that.
    - `predicted`: milliseconds that the compiler predicted.
    - `message`: the reason if it was not raced.
    - `skippable`: the part of ``predicted`` that some data make needless.
    """

    name: str
    milliseconds: float = 0.0
    peers: dict[str, float] | None = None
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    predicted: float = 0.0
    message: str = ""
    skippable: float = 0.0

    @property
    def is_bound(self) -> bool:
        """Whether the prediction is only a bound, because data decide too much of it."""
        return self.skippable > BOUND * self.predicted

    @property
    def error(self) -> float:
        """The relative error of the prediction; a bound errs only if a call takes longer."""
        off = self.predicted / self.milliseconds - 1
        return max(0.0, -off) if self.is_bound else abs(off)


def raced(name: str, path: Path, rounds: int) -> Race:
    """Race one model in child processes, which may crash."""
    command = [sys.executable, "-m", "neocpu", "bench", "race", str(path), "--json", "--quiet"]
    command += ["--vs", ",".join(PEERS), "--rounds", str(rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RACE_SECONDS)
        result = json.loads(done.stdout)["results"][0]
    except subprocess.TimeoutExpired:
        return Race(name=name, message=f"not done after {RACE_SECONDS} s")
    except (ValueError, IndexError, KeyError):
        why = f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"
        return Race(name=name, message=why)
    latencies = result["latency"]["results"]
    medians = {each["label"]: 1e3 * each["median"] for each in latencies}
    wrong = [f"{each['label']} {each['mismatch']}" for each in latencies if not each["agrees"]]
    ours = medians.pop("neocpu")
    if result["ratio"] is None:
        return Race(name=name, milliseconds=ours, message="no other engine runs it")
    found, planned = result["ratio"], result["planned"]
    times = {name: 1e3 * planned[name] for name in ("predicted", "skippable")}
    ratio = {"ratio": found["value"], "low": found["low"], "high": found["high"]}
    message = "; ".join(wrong)
    return Race(name=name, milliseconds=ours, peers=medians, message=message, **ratio, **times)


def summary(races: list[Race]) -> list[str]:
    """Return a summary of the ratios and of the predictions, a line each."""
    ratios = [each.ratio for each in races if each.ratio]
    predicted = [each for each in races if each.ratio and each.predicted]
    errors = [each.error for each in predicted]
    if not ratios:
        return ["nothing was raced"]
    least = min((each for each in races if each.ratio), key=lambda each: each.ratio)
    below = [sum(ratio < bound for ratio in ratios) for bound in (1.0, 0.9)]
    lines = [
        f"{len(ratios)} models: geometric mean {statistics.geometric_mean(ratios):.2f}, "
        f"median {statistics.median(ratios):.2f}, least {least.ratio:.2f} ({least.name}), "
        f"{below[0]} below 1.00, {below[1]} below 0.90"
    ]
    if errors:
        lines.append(
            f"predicted against measured: median error {statistics.median(errors):.0%}, "
            f"worst {max(errors):.0%}; of {sum(each.is_bound for each in predicted)}, whose "
            "data decide what is computed, the prediction is a bound (≤)"
        )
    return lines


def document(races: list[Race], rounds: int) -> str:
    """Return the document."""
    lines = [
        "# Networks that nobody here tuned for",
        "",
        f"By `python -m tests.zoo.race PYTHON --rounds {rounds} --document docs/zoo.md` on a "
        f"`{host_cpu()}`: exported by PyTorch (TorchScript) with random weights, compiled "
        "without tuning, raced by `neocpu bench race` beside ONNX Runtime and OpenVINO in float32. "
        "Milliseconds a call; `ratio` is the fastest peer's to ours, with its interval of 95 %.",
        "",
        *summary(races),
        "",
        f"| network | neocpu | {' | '.join(PEERS)} | ratio | predicted |",
        f"|---|---:|{'---:|' * len(PEERS)}---:|---:|",
    ]
    for each in sorted(races, key=lambda each: each.name):
        if each.peers:
            peers = " | ".join(
                next((f"{v:.2f}" for k, v in each.peers.items() if k.startswith(peer)), "")
                for peer in PEERS
            )
            cells = [
                each.name,
                f"{each.milliseconds:.2f}",
                peers,
                f"{each.ratio:.2f} ({each.low:.2f} to {each.high:.2f})",
                f"{'≤ ' if each.is_bound else ''}{each.predicted:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    left = [f"- {each.name}: {each.message}" for each in races if each.message]
    if left:
        lines += ["", "Said of some:", "", *left]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.race")
    parser.add_argument("python")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--document", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/races.jsonl"))
    parser.add_argument("--kept", type=Path, help="folder where exports are kept for other runs")
    options = parser.parse_args()
    races = kept(options.output, Race)
    done = {each.name for each in races}
    left = [each for each in ARCHITECTURES if options.only in each.name and each.name not in done]
    for name, path, why in exports(options.python, "torchscript", left, options.kept):
        found = Race(name=name, message=why) if path is None else raced(name, path, options.rounds)
        races.append(found)
        print(f"{name}: {found.ratio:.2f} {found.message[:200]}", flush=True)
        keep(options.output, found)
    print("\n".join(summary(races)))
    if options.document:
        options.document.write_text(document(races, options.rounds))


if __name__ == "__main__":
    main()
