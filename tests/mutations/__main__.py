"""Would the tests notice? ``python -m tests.mutations [NAME…]``: plants bugs, one at a time.

Each is planted in a copy of the checkout, and the tests that ought to catch it run there. One that
they do not catch is a gap in the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations.bug import Bug
from tests.mutations.bugs import BUGS

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "foundation", "schedules", "search", "tuning_db")
TIMEOUT = 600


def copied(folder: Path) -> Path:
    """Copy the files that git tracks, and arrange the packages as in an installation."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    tree = folder / "tree"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for name in PACKAGES:
        (tree / "neocpu" / name).symlink_to(tree / name)
    build_core(tree)
    return tree


def build_core(tree: Path) -> None:
    """Compile the copy's C library, whose source may have a bug planted."""
    code = "from wheels.backend import *; compile_core(CORE / LIBRARY, ['cc'])"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True)


def is_caught(tree: Path, bug: Bug) -> bool:
    """Plant ``bug``, run its tests, remove it again, and return whether they failed."""
    path = tree / bug.path
    text = path.read_text()
    is_core = bug.path.startswith("core/")
    path.write_text(text.replace(bug.right, bug.wrong))
    try:
        if is_core:
            build_core(tree)
        return not passes(tree, bug.tests)
    finally:
        path.write_text(text)
        if is_core:
            build_core(tree)


def passes(tree: Path, tests: tuple[str, ...]) -> bool:
    """Run ``tests`` in the copy, and return whether all passed in time."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "NEOCPU_TESTS": "all"}
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False  # a suite that hangs is noticed, too
    # 1 is a failed test, 2 one that cannot even be collected, and less than 0 a signal; 3 to 5 are
    # pytest's own: an internal error, wrong usage, no tests.
    if process.returncode in (3, 4, 5):
        raise RuntimeError(f"{' '.join(tests)}: {said.decode()[-2000:]}")
    return process.returncode == 0


def main() -> int:
    """Run the command line; 1 if a bug was not caught."""
    parser = argparse.ArgumentParser(prog="tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs to plant; all by default")
    names = parser.parse_args().names
    if unknown := set(names) - {bug.name for bug in BUGS}:
        parser.error(f"no bug is called {unknown.pop()!r}")
    bugs = [bug for bug in BUGS if not names or bug.name in names]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        for tests in dict.fromkeys(bug.tests for bug in bugs):
            if not passes(tree, tests):
                raise RuntimeError(f"{' '.join(tests)}: failed with no bug planted")
        for number, bug in enumerate(bugs, start=1):
            caught = is_caught(tree, bug)
            print(
                f"{number}/{len(bugs)} {bug.name}: {'caught' if caught else 'MISSED'}", flush=True
            )
            missed += [] if caught else [bug.name]
    print(f"{len(bugs) - len(missed)} of {len(bugs)} caught")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
