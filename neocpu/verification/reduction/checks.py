"""Checks that a model may fail: built-in ones, or a command of the caller."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

from neocpu.building.forked import Limits, run_in_child
from neocpu.building.interrupts import started
from neocpu.compilation.compiler import compile
from neocpu.foundation.errors import AccuracyError, MissingPackageError, NeoCPUError, UsageError
from neocpu.foundation.python_child import module_command
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.frontend.load import load_model
from neocpu.schedules.vocabulary.accuracy import DEFAULT
from neocpu.verification.reduction.whole_graph import Arrays, Case
from neocpu.verification.reference.verification import Verifier

Find: TypeAlias = Callable[[Case, float], "str | None"]
Write: TypeAlias = Callable[[Path, Arrays], None]

MODEL, INPUTS = "{model}", "{inputs}"
"""Placeholders in a command for the paths of a model and of an archive of its inputs."""

SLOWER: Final = 0.95  # ratio of ONNX Runtime's latency to ours above which a difference is noise
SHARED_WORDS: Final = 0.75
"""Least share of a failure's words that another failure of the same kind has too."""
_NO_COMMAND: Final = (126, 127)
"""Exit codes of a shell if a program does not exist or cannot be run."""


@dataclass(frozen=True, slots=True)
class Check:
    """A test of whether a model fails, and a command that shows it, with `MODEL` and `INPUTS`.

    ``find`` takes a `Case` and a limit in seconds; it returns the failure in one line, or None.
    """

    find: Find
    line: str

    def shown(self, model: Path, inputs: Path) -> str:
        return _filled(self.line, model, inputs)


def parse_check(text: str, write: Write) -> Check:
    """Return a built-in check by its name, or one that runs a command, which passes if it exits 0.

    The model's path is appended to a shell command without `MODEL`; ``write`` writes an archive of
    inputs. A text that the shell cannot read is a `UsageError`.
    """
    if text in CHECKS:
        return CHECKS[text]
    if not text.strip():
        raise UsageError(f"--check is empty: give a command, or one of {', '.join(CHECKS)}")
    line = text if MODEL in text else f"{text} {MODEL}"
    _check_syntax(line)
    return Check(partial(_run_command, line, write), line)


def _check_syntax(line: str) -> None:
    """Check the syntax of a command without running it: an error would look like a failure."""
    filled = _filled(line, Path("model.onnx"), Path("inputs.npz"))
    command = ["/bin/sh", "-n", "-c", filled]
    read = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if read.returncode != 0:
        said = read.stderr.decode(errors="replace").strip().splitlines()
        reason = said[0] if said else f"exit code {read.returncode}"
        raise UsageError(f"--check {line}: the shell cannot read that command: {reason}")


def same_kind(one: str, other: str) -> bool:
    """Whether two failures are of one kind; names and numbers in them do not matter."""
    (kind, *words), (other_kind, *other_words) = _words(one), _words(other)
    shared = sum(word in other_words for word in words)
    return kind == other_kind and shared >= SHARED_WORDS * len(words)


def _words(failure: str) -> Sequence[str]:
    kind, _, rest = failure.partition(": ")
    return [kind, *re.findall(r"[a-z]{3,}", re.sub(r"'[^']*'", "", rest))]


def _filled(line: str, model: Path, inputs: Path) -> str:
    return line.replace(MODEL, shlex.quote(str(model))).replace(INPUTS, shlex.quote(str(inputs)))


def _run_command(line: str, write: Write, case: Case, seconds: float) -> str | None:
    with TemporaryFolder("reduce") as folder:
        model, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        model.write_bytes(case.model.SerializeToString())
        if INPUTS in line:
            write(inputs, case.inputs)
        code, _ = _run(["/bin/sh", "-c", _filled(line, model, inputs)], seconds)
    if code in _NO_COMMAND:
        raise UsageError(f"--check {line}: the shell finds no such command (exit code {code})")
    return _ending(code, seconds)


def _ending(code: int | None, seconds: float) -> str | None:
    if code is None:
        return f"too slow: took more than {seconds:.0f} s"
    if code < 0:
        return f"signal {-code}"
    return f"exit code {code}" if code else None


def _run(command: Sequence[str], seconds: float) -> tuple[int | None, bytes]:
    """Run a command and its children; return the exit code (None on a time-out) and the output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        with started(command, stdin=subprocess.DEVNULL, **pipes) as child:
            printed, _ = child.communicate(timeout=seconds)
            return child.returncode, printed
    except subprocess.TimeoutExpired:
        return None, b""
    except OSError as error:
        raise NeoCPUError(f"cannot start a child process: {error}") from error


def _in_child(work: Callable[[Case], None], case: Case, seconds: float) -> str | None:
    """Run a function in a child process; return its exception or the process's end, if it fails."""
    return run_in_child(partial(work, case), Limits(round(2 * seconds), seconds))


def _compile(case: Case) -> None:
    with compile(case.model, verify=False):
        pass


def _differ(case: Case) -> None:
    loaded = load_model(case.model)
    with compile(case.model, verify=False) as compiled, compiled.module() as module:
        outputs = module.run(case.inputs)
    judge = Verifier(loaded.reference, case.inputs, DEFAULT, loaded.row_groups, loaded.shapes)
    verdict = judge.judge(outputs)
    if not verdict.is_accepted:
        raise AccuracyError(judge.reason(verdict))


def _race(case: Case, seconds: float) -> str | None:
    if find_spec("onnxruntime") is None:
        raise MissingPackageError("--check slower needs ONNX Runtime: pip install 'neocpu[bench]'")
    with TemporaryFolder("reduce") as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(case.model.SerializeToString())
        options = ("--vs", "onnxruntime", "--rounds", "4", "--json", "--quiet")
        command = module_command("neocpu", "bench", "race", model, *options)
        code, printed = _run(command, seconds)
    if code != 0:
        return _refusal(printed) or _ending(code, seconds)
    (result,) = json.loads(printed)["results"]
    ratio = result["ratio"]
    if ratio is None or ratio["value"] > SLOWER or ratio["high"] > 1:
        return None
    return f"slower: takes {1 / ratio['value']:.2f} times as long as ONNX Runtime"


def _refusal(printed: bytes) -> str | None:
    """Return why ``neocpu bench`` did not measure, by its document; None if outputs differ."""
    document = json.loads(printed or b"{}")
    reasons = [failure["reason"] for failure in document.get("failures", ())]
    reasons += [document["error"]["message"]] if "error" in document else []
    return f"cannot be raced: {reasons[0]}" if reasons else None


CHECKS: Final[Mapping[str, Check]] = {
    "does-not-compile": Check(
        partial(_in_child, _compile), f"neocpu compile {MODEL} -o reduced.so --no-verify"
    ),
    "differs": Check(
        partial(_in_child, _differ), f"neocpu reduce {MODEL} --inputs {INPUTS} --check differs"
    ),
    "slower": Check(_race, f"neocpu bench {MODEL} --vs onnxruntime"),
}
"""Built-in checks: compilation fails; outputs differ from the reference; ONNX Runtime is faster."""
