"""``python -m tests.everything [NAME ...]``: every check that ``make test`` leaves out, in turn.

A check that fails does not stop the others. A table of all outcomes comes last, and the exit status
is 1 if any check failed. These checks are skipped unless the environment names what they need:

- ``zoo``: NEOCPU_ZOO_PYTHON is a Python that has PyTorch;
- ``precision``: NEOCPU_PRECISION_DOWNLOADS is the folder that `tests.precision` describes;
- ``object-code``: OLD is the ``neocpu`` command of another tree.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
INTERRUPTED: Final = 130
"""The exit status of a run that the user ended."""

MAKE: Final = ("fresh", "fuzz", "soak", "mutations", "test-guard", "object-code")
#: The command of each check, in the root of the checkout, and the variable that it needs, if any;
#: ``$NAME`` in a command is replaced by that variable.
CHECKS: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    **{name: (("make", name), "OLD" if name == "object-code" else "") for name in MAKE},
    **{
        name: ((sys.executable, "-m", f"tests.{name}", f"${variable}"), variable)
        for name, variable in (
            ("zoo", "NEOCPU_ZOO_PYTHON"),
            ("precision", "NEOCPU_PRECISION_DOWNLOADS"),
        )
    },
}


class Result(NamedTuple):
    """The outcome: passed, failed (status), interrupted, not run, or skipped: and the reason."""

    name: str
    outcome: str
    seconds: float = 0.0


def run_all(
    checks: Mapping[str, tuple[Sequence[str], str]],
    environment: Mapping[str, str],
    run: Callable[[Sequence[str]], int],
    clock: Callable[[], float] = time.monotonic,
) -> list[Result]:
    """Run checks in order by ``run``, which returns an exit status; return each one's outcome."""
    results: list[Result] = []
    for name, (command, variable) in checks.items():
        value = environment.get(variable, "")
        if results and results[-1].outcome in ("interrupted", "not run"):
            results.append(Result(name, "not run"))
        elif variable and not value:
            results.append(Result(name, f"skipped: {variable} is not set"))
        else:
            print(f"\n=== {name}", flush=True)
            start = clock()
            try:
                status = run([value if word == f"${variable}" else word for word in command])
                outcome = f"failed ({status})" if status else "passed"
            except KeyboardInterrupt:
                outcome = "interrupted"
            results.append(Result(name, outcome, clock() - start))
    return results


def table(results: Sequence[Result]) -> str:
    """Return a line for each result: its name, outcome and minutes."""
    rows = [("check", "outcome", "minutes")]
    rows += [(each.name, each.outcome, f"{each.seconds / 60:.1f}") for each in results]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{name:<{widths[0]}}  {outcome:<{widths[1]}}  {minutes:>{widths[2]}}"
        for name, outcome, minutes in rows
    )


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, print the table, and return the exit status."""
    known = ", ".join(CHECKS)
    parser = argparse.ArgumentParser("python -m tests.everything", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {known}")
    asked = parser.parse_args(arguments).names
    if unknown := [name for name in asked if name not in CHECKS]:
        parser.error(f"there is no check '{unknown[0]}'; there are {known}")
    chosen = {name: check for name, check in CHECKS.items() if not asked or name in asked}
    results = run_all(
        chosen, os.environ, lambda command: subprocess.run(command, cwd=ROOT).returncode
    )
    print(f"\n{table(results)}", flush=True)
    if any(each.outcome == "interrupted" for each in results):
        return INTERRUPTED
    return int(not all(each.outcome.startswith(("passed", "skipped")) for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
