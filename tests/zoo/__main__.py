"""Export architectures of other packages, compile each, and hold it to ONNX Runtime.

    python -m tests.zoo PYTHON [--only WORD] [--exporter dynamo] [--verify] [-o results.jsonl]

PYTHON is another environment's, with these packages (6 GB of them):

    pip install torch torchvision timm onnxscript transformers segmentation-models-pytorch \\
        ultralytics

What OUT already has is not done again. At the end a table says what came of all in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from tests.zoo.architectures import ARCHITECTURES, EXPORTERS, Architecture
from tests.zoo.check import Outcome

EXPORT_SECONDS, COMPILE_SECONDS = 300, 600
AT_A_TIME = 6
"""Architectures that one process exports: PyTorch takes seconds to import, and models are large."""


def exported(
    python: str, exporter: str, architectures: list[Architecture], folder: Path
) -> dict[str, str]:
    """Export some; return what was said of each."""
    words = [f"{each.name}:{'x'.join(map(str, each.shape))}" for each in architectures]
    command = [python, str(Path(__file__).parent / "export.py"), str(folder), exporter, *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=EXPORT_SECONDS * len(words),
            cwd=folder,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def checked(path: Path, verify: bool) -> Outcome:
    """Check one model in a process that may die of it."""
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
    python: str, exporter: str, architectures: list[Architecture], verify: bool
) -> Iterator[Outcome]:
    """Export and check, a few at a time."""
    for first in range(0, len(architectures), AT_A_TIME):
        some = architectures[first : first + AT_A_TIME]
        with tempfile.TemporaryDirectory(prefix="neocpu-zoo-") as name:
            folder = Path(name)
            said = exported(python, exporter, some, folder)
            for each in some:
                path = folder / f"{each.name}.{exporter}.onnx"
                why = said.get(each.name, "the exporter died or did not end")
                if why == "ok":
                    found = checked(path, verify)
                    path.unlink()
                else:
                    found = Outcome(outcome="not exported", message=why)
                yield replace(found, name=each.name, exporter=exporter)


def table(results: list[Outcome]) -> str:
    """Return what came of all, in lines."""
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
    """Do what the module's text says."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("python")
    parser.add_argument("--only", default="")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/zoo.jsonl"))
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.touch()
    results = [Outcome(**json.loads(line)) for line in options.output.read_text().splitlines()]
    done = {(each.name, each.exporter) for each in results}
    for exporter in options.exporter or EXPORTERS:
        left = [
            each
            for each in ARCHITECTURES
            if options.only in each.name and (each.name, exporter) not in done
        ]
        for found in outcomes(options.python, exporter, left, options.verify):
            results.append(found)
            print(f"{found.name} ({exporter}): {found.outcome} {found.message[:200]}", flush=True)
            with options.output.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
