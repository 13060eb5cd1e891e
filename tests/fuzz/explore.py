"""Cases of hypothesis's making: random graphs or models that were changed, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.choices import Choices
from tests.fuzz.corpus import real_case
from tests.fuzz.generate import generate
from tests.fuzz.mutate import mutate
from tests.fuzz.pool import Pool, Tally, keep


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


def make_case(rng: Choices) -> Case:
    """Return a random graph, a mutated one, or a mutated real model."""
    kind = rng.weighted(["graph", "mutated graph", "mutated model"], [55, 20, 25])
    if kind == "graph":
        return generate(rng)
    return mutate(rng, generate(rng) if kind == "mutated graph" else real_case(rng))
