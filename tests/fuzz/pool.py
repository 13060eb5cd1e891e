"""Run cases through a zygote, and count their outcomes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.fuzz.case import Case, Outcome
from tests.fuzz.zygote import outcome_of

ROOT = Path(__file__).parents[2]


class Pool:
    """A zygote, and a folder for the cases it runs; started anew should it ever die."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._count = 0
        self._zygote: subprocess.Popen[str] | None = None

    def run(self, case: Case) -> tuple[Outcome, Path]:
        """Run a case; return its outcome and the folder that holds it until the pool closes."""
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        case.save(folder)
        zygote = self._ready()
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        zygote.stdin.write(f"{folder}\n")
        zygote.stdin.flush()
        line = zygote.stdout.readline()
        if not line:
            self._zygote = None
            return Outcome("traceback", "the zygote died"), folder
        return outcome_of(folder, json.loads(line)), folder

    def _ready(self) -> subprocess.Popen[str]:
        if self._zygote is None:
            paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._folder.name,
                # One thread of numpy's: more would not survive a fork.
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1"},
            )
            assert self._zygote.stdout is not None
            assert self._zygote.stdout.readline() == "ready\n"
        return self._zygote

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._zygote is not None:
            assert self._zygote.stdin is not None
            assert self._zygote.stdout is not None
            self._zygote.stdin.close()
            self._zygote.wait()
            self._zygote.stdout.close()
        self._folder.cleanup()


@dataclass(slots=True)
class Tally:
    """The outcomes of many cases, and a line for each failure.

    Refusals are counted by reason; those of models that ONNX Runtime runs are in ``doubtful`` too.
    ``compiled`` counts how many cases with each operator gave the right answer.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    doubtful: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Count one case."""
        names = {node.op_type for node in case.model.graph.node}
        self.kinds[outcome.kind] += 1
        self.operators.update(names)
        if outcome.kind == "equal":
            self.compiled.update(names)
        if outcome.kind == "refused":
            reason = general(outcome.detail)
            self.refusals[reason] += 1
            if outcome.accepted:
                self.doubtful[reason] += 1

    def merge(self, other: Tally) -> None:
        """Add another tally's counts."""
        for name in ("kinds", "refusals", "doubtful", "operators", "compiled"):
            getattr(self, name).update(getattr(other, name))
        self.failures += other.failures

    def table(self) -> str:
        """Return the summary."""
        total = self.kinds.total()
        lines = [f"{total} cases"]
        lines += [f"{count:7}  {kind}" for kind, count in self.kinds.most_common()]
        lines.append(f"{sum(self.refusals.values())} refused, by reason (of them ONNX Runtime ran)")
        for reason, count in self.refusals.most_common(60):
            lines.append(f"{count:7}  ({self.doubtful[reason]})  {reason}")
        never = sorted(set(self.operators) - set(self.compiled))
        lines.append(f"{len(self.operators)} operators, right in {len(self.compiled)}; never in:")
        lines.append("    " + ", ".join(f"{name} ({self.operators[name]})" for name in never))
        lines += [f"{len(self.failures)} failures", *self.failures]
        return "\n".join(lines)


def general(message: str) -> str:
    """Return a message without the names and numbers that make each one different."""
    message = re.sub(r"'[^']*'", "'…'", message)
    return re.sub(r"\d[\d.e+-]*", "N", message)[:140]


def keep(folder: Path, outcome: Outcome, out: Path, name: str) -> str:
    """Copy a failure's folder to ``out``; return its line, with the command that repeats it."""
    target = out / f"{name}-{outcome.kind.replace(' ', '-')}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    detail = outcome.detail[:300]
    return f"{outcome.kind} ({outcome.stage}): {detail}\n    python -m tests.fuzz {target}"
