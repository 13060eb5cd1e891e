"""A process that has imported everything and forks for each case, within limits.

Importing TVM and ONNX Runtime takes a second, a fork a hundredth. Each line of standard input is a
folder with a case; the child leaves its outcome there, and a line of JSON says how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.file_limits import limit_files
from tests.fuzz.case import Case, Outcome
from tests.fuzz.run_case import run_case

SECONDS = 60
"""The most CPU seconds of a case; a busy machine thus makes no case a hang."""
_WAITING_SECONDS = 600.0
"""The most seconds to wait for a case that computes nothing."""
_MEMORY = 8 << 30
_FILE_BYTES = 1 << 30
_CLOSING_SECONDS = 1.0


def serve() -> None:
    """Run the cases that standard input names, one after the other."""
    _warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        child = os.fork()
        if child == 0:
            _run(folder)
        print(json.dumps(_watch(child)), flush=True)


def _warm_up() -> None:
    """Load what is imported late: TVM's passes, LLVM's targets, the optimizer's rules."""
    from onnx import helper

    import neocpu

    info = helper.make_tensor_value_info("x", 1, [1, 1, 2, 2])
    out = helper.make_tensor_value_info("y", 1, [1, 1, 2, 2])
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "warm", [info], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with neocpu.compile(model, threads=1, verify=False):
        pass


def _run(folder: Path) -> None:
    """Run one case in this child, and end it."""
    os.setsid()
    limit_files(_FILE_BYTES)
    for kind, limit in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, SECONDS),
    ):
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    inside = folder / "tmp"
    inside.mkdir()
    os.chdir(inside)
    os.environ["TMPDIR"] = tempfile.tempdir = str(inside)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    silent = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((silent, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    code = 1
    try:
        outcome = run_case(Case.load(folder), (folder / "stage").write_text)
        (folder / "outcome.json").write_text(outcome.to_json())
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _watch(child: int) -> dict[str, float | int | bool]:
    """Wait for a child, end it at its time limit, and look for processes it left."""
    started = time.monotonic()
    descriptor = os.pidfd_open(child)
    ended, _, _ = select.select([descriptor], [], [], _WAITING_SECONDS)
    os.close(descriptor)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    orphans = bool(ended) and _left_behind(child)
    seconds = time.monotonic() - started
    return {"code": status, "hung": not ended, "orphans": orphans, "seconds": seconds}


def _left_behind(group: int) -> bool:
    """Return whether the child's process group has members a moment after its end; end them."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    return True


def outcome_of(folder: Path, ended: dict[str, float | int | bool]) -> Outcome:
    """Return a case's outcome, from what the child left and how it ended."""
    stage = (folder / "stage").read_text() if (folder / "stage").exists() else "start"
    if ended["hung"] or ended["code"] == -signal.SIGXCPU:
        return _unfinished("hang", f"not done after {ended['seconds']:.0f} s", stage)
    if ended["code"] < 0:
        return _unfinished("signal", signal.Signals(-int(ended["code"])).name, stage)
    written = folder / "outcome.json"
    if ended["code"] or not written.exists():
        output = (folder / "output.txt").read_text(errors="replace").strip().splitlines()
        return Outcome("traceback", output[-1] if output else "no outcome", stage)
    outcome = Outcome.from_json(written.read_text())
    left = sorted(path.name for path in (folder / "tmp").iterdir())
    if left or ended["orphans"]:
        return Outcome("left behind", f"files {left[:5]}, processes: {ended['orphans']}", stage)
    return outcome


def _unfinished(kind: str, detail: str, stage: str) -> Outcome:
    if stage.startswith("peer"):
        return Outcome("peer died", f"{kind}: {detail}", stage)
    return Outcome(kind, detail, stage)


if __name__ == "__main__":
    serve()
