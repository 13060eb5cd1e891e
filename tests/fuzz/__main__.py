"""Many cases at once: ``python -m tests.fuzz --cases 5000 --seed 1``, or some again, by folder."""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.explore import again, run_many
from tests.fuzz.pool import Tally

OUT = Path("build/fuzz")


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
