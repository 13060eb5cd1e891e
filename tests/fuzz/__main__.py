"""Many cases at once: ``python -m tests.fuzz --cases 5000 --seed 1``, or some again, by folder."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.choices import Choices
from tests.fuzz.make_case import make_case
from tests.fuzz.pool import Pool, Tally, keep

OUT = Path("build/fuzz")


def explore(cases: int, seed: int, visit: Callable[[Case], None]) -> None:
    """Call ``visit`` with as many cases of hypothesis's making."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def each(rng: Random) -> None:
        visit(make_case(Choices(rng)))

    each()


def run_many(cases: int, out: Path, seed: int) -> Tally:
    """Run cases one after the other; failures are kept in ``out``."""
    tally, started = Tally(), time.monotonic()
    with Pool() as pool:

        def visit(case: Case) -> None:
            outcome, folder = pool.run(case)
            tally.add(case, outcome)
            number = tally.kinds.total()
            noted = outcome.notes and outcome.kind != "refused"
            if outcome.failed or noted or outcome.kind in ("unstable", "peers differ", "peer died"):
                line = keep(folder, outcome, out, f"{seed}-{number}")
                if outcome.failed:
                    tally.failures.append(line)
                print(f"[{number}] {line}", *outcome.notes[:1], case.origin, flush=True)
            if number % 100 == 0:
                seconds = time.monotonic() - started
                print(f"[{number}] {seconds:.0f} s {dict(tally.kinds)}", flush=True)

        explore(cases, seed, visit)
    return tally


def again(folders: list[Path]) -> None:
    """Run kept cases anew and print their outcomes."""
    with Pool() as pool:
        for folder in folders:
            case = Case.load(folder)
            outcome, where = pool.run(case)
            print(f"{folder}: {outcome} {case.origin}")
            print((where / "output.txt").read_text(errors="replace"), end="", flush=True)


def main() -> int:
    """Run the command line; 1 if there was a failure."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="kept cases to run again")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that run cases side by side")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for failures")
    options = parser.parse_args()
    if options.folders:
        again(options.folders)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    total = Tally()
    seeds = range(options.seed * options.jobs, (options.seed + 1) * options.jobs)
    part = partial(run_many, -(-options.cases // options.jobs), options.out)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as processes:
        for tally in processes.map(part, seeds):
            total.merge(tally)
    print(total.table())
    return bool(total.failures)


if __name__ == "__main__":
    raise SystemExit(main())
