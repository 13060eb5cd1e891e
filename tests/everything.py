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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
INTERRUPTED: Final = 130
"""The exit status of a run that the user ended."""


@dataclass(frozen=True, slots=True)
class Check:
    """A command that checks something.

    - `command`: the command, in the root of the checkout. ``$NAME`` is replaced by a variable of
      the environment.
    - `variable`: the variable that the command needs; empty if it needs none.
    """

    name: str
    command: tuple[str, ...]
    variable: str = ""

    def arguments(self, environment: Mapping[str, str]) -> list[str]:
        """Return the command with the variable's value in place."""
        value = environment.get(self.variable, "")
        return [value if each == f"${self.variable}" else each for each in self.command]


CHECKS: Final = (
    Check("fresh", ("make", "fresh")),
    Check("fuzz", ("make", "fuzz")),
    Check("soak", ("make", "soak")),
    Check("mutations", ("make", "mutations")),
    Check("test-guard", ("make", "test-guard")),
    Check("zoo", (sys.executable, "-m", "tests.zoo", "$NEOCPU_ZOO_PYTHON"), "NEOCPU_ZOO_PYTHON"),
    Check(
        "precision",
        (sys.executable, "-m", "tests.precision", "$NEOCPU_PRECISION_DOWNLOADS"),
        "NEOCPU_PRECISION_DOWNLOADS",
    ),
    Check("object-code", ("make", "object-code"), "OLD"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a check.

    - `outcome`: ``passed``, ``failed (status)``, ``interrupted``, ``not run``, or ``skipped: `` and
      why.
    """

    name: str
    outcome: str
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the check passed, or needed something that is not there."""
        return self.outcome.startswith(("passed", "skipped"))


def run_all(
    checks: Sequence[Check],
    environment: Mapping[str, str],
    run: Callable[[Sequence[str]], int],
    clock: Callable[[], float] = time.monotonic,
) -> list[Result]:
    """Run checks in order by ``run``, which returns an exit status; return each one's outcome."""
    results: list[Result] = []
    for number, check in enumerate(checks):
        if check.variable and not environment.get(check.variable):
            results.append(Result(check.name, f"skipped: {check.variable} is not set"))
            continue
        print(f"\n=== {check.name}", flush=True)
        start = clock()
        try:
            status = run(check.arguments(environment))
        except KeyboardInterrupt:
            results.append(Result(check.name, "interrupted", clock() - start))
            results += [Result(each.name, "not run") for each in checks[number + 1 :]]
            break
        outcome = f"failed ({status})" if status else "passed"
        results.append(Result(check.name, outcome, clock() - start))
    return results


def table(results: Sequence[Result]) -> str:
    """Return a line for each result: its name, outcome and minutes."""
    rows = [("check", "outcome", "minutes")]
    rows += [(each.name, each.outcome, f"{each.seconds / 60:.1f}") for each in results]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {outcome:<{widths[1]}}  {minutes:>{widths[2]}}"
        for name, outcome, minutes in rows
    )


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, print the table, and return the exit status."""
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser("python -m tests.everything", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names)}")
    asked = parser.parse_args(arguments).names
    for name in asked:
        if name not in names:
            parser.error(f"there is no check '{name}'; there are {', '.join(names)}")
    chosen = [check for check in CHECKS if not asked or check.name in asked]
    results = run_all(chosen, os.environ, _run)
    print(f"\n{table(results)}", flush=True)
    if any(each.outcome == "interrupted" for each in results):
        return INTERRUPTED
    return int(not all(each.is_good for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
