"""The README's commands on a fresh machine: `make fresh [SUITE=…] [WITH=…] [TEST=…] [SEED=N]`.

A minimal Debian with what the README asks for is made in a temporary folder, HEAD is cloned into
it, and an ordinary user with an empty home runs `make demo` and `make test` there, the tests in
shuffled order. ``SUITE`` is another Debian, and so another Python; ``WITH`` installs packages that
users have beside neocpu, and runs a script that uses both in one process, before the tests.
``TEST`` is ``no``, or the tests to run in place of all.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tests.fresh import machine
from tests.fresh.environments import ENVIRONMENTS, SUITES, choose


def main(arguments: Sequence[str]) -> NoReturn:
    """Make the machine, run the commands, and exit with their status."""
    asked = parse(arguments)
    suite = choose("SUITE", asked.suite, SUITES)
    environment = choose("WITH", asked.beside, ENVIRONMENTS) if asked.beside else None
    tests = chosen_tests(asked.test)
    commands = [*steps(environment, tests, asked.seed)]
    more = ENVIRONMENTS[environment].debian if environment else ()
    bootstrap = machine.find_bootstrap(more)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    where = f"{suite} (Python {SUITES[suite]})" + (f" with {environment}" if environment else "")
    again = f"; SEED={asked.seed} repeats the tests' order" if tests is not None else ""
    print(f"fresh: {machine.head()}, on {where}{again}", flush=True)
    status, left = machine.run_on_a_new_one(bootstrap, suite, commands)
    verdict = f"failed with status {status}" if status else "passed"
    if left:
        verdict = f"failed: this is new or changed in the clone:\n{left.rstrip()}"
    print(f"fresh: {where}, seed {asked.seed} {verdict}", flush=True)
    sys.exit(status or bool(left))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; `make` passes empty words for options that are not set."""
    parser = argparse.ArgumentParser("make fresh", description=__doc__)
    parser.add_argument("--suite", help=f"Debian's: {', '.join(SUITES)}")
    parser.add_argument("--with", dest="beside", help=f"one of {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--test", help="no, or what of the tests to run")
    parser.add_argument("--seed", help="of the tests' order")
    asked = parser.parse_args(arguments)
    asked.suite = asked.suite or next(iter(SUITES))
    asked.test = asked.test or "yes"
    asked.seed = asked.seed or str(int(time.time()) % 1_000_000)
    return asked


def chosen_tests(asked: str) -> Sequence[str] | None:
    """Return the tests to run, none for all; None if there are to be no tests at all."""
    files = asked.split()
    if all(name.startswith("tests/") and Path(name.partition("::")[0]).exists() for name in files):
        return files
    return () if choose("TEST", asked, ("yes", "no", "tests/…")) == "yes" else None


def steps(environment: str | None, tests: Sequence[str] | None, seed: str) -> Iterator[str]:
    """Yield the commands that the user runs in the clone."""
    yield "make demo"
    if environment is not None:
        yield shlex.join((".venv/bin/pip", "install", "-q", *ENVIRONMENTS[environment].packages))
        yield f".venv/bin/python tests/fresh/with_{environment}.py"
    if tests is not None:
        order = ("--random-order", f"--random-order-seed={seed}", "--durations=80")
        options = shlex.quote(" ".join((*order, *tests)))
        # Tests that repeat others run once, on the machine without other packages.
        everything = "" if environment else "NEOCPU_TESTS=all "
        yield f"{everything}make test PYTEST={options}"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
