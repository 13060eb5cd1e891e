"""Batches of any size: a set's module compared with all the ways to compose them.

A batch with its own plan may be composed of other plans too. Each batch runs as the module composes
it, in turns with a batch of one row and with the best other composition by the plans' measured
times. That one is found among every multiset of plans without a superfluous run; spare rows are
allowed. The module is compared with the better of two: the least sum of plans' times, or the other
composition as it ran.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import mul, truediv
from typing import Any, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Runs: TypeAlias = "tuple[int, ...]"
"""The rows of each run's plan, largest first."""


class Module(Protocol):
    """A loaded set of batches, of one input and one output."""

    def __call__(self, inputs: Array, /) -> Array:
        """Run a batch."""

    def run_plan(self, number: int, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Run one plan."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's rows, the module's runs for it, and the seconds of all sides."""

    rows: int
    runs: Runs
    other: Runs
    times: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self, side: str) -> float:
        """Return the median of one side's times."""
        return statistics.median(self.times[side])

    def beside(self, runs: Mapping[str, int]) -> float:
        """Return the sides' times for some calls, relative to the module's: medians of rounds."""
        rounds = zip(*(self.times[side] for side in runs), strict=True)
        sums = (sum(map(mul, runs.values(), took)) for took in rounds)
        return statistics.median(map(truediv, sums, self.times["own"]))


def all_runs(sizes: Sequence[int], rows: int) -> Iterator[Runs]:
    """Yield every multiset of plans that covers the rows, and needs each of its runs.

    Parameters
    ----------
    sizes : sequence of int
        The rows of the plans.
    """
    if rows <= 0:
        yield ()
        return
    for size in sizes:
        for rest in all_runs([each for each in sizes if each <= size], rows - size):
            if size + sum(rest) - min((size, *rest)) < rows:
                yield (size, *rest)


def composed(module: Module, runs: Runs, batch: Array) -> list[Array]:
    """Compute a batch by these runs, with zeros in spare rows."""
    results, done = [], 0
    for size in runs:
        part = batch[done : done + size]
        if len(part) < size:
            part = np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])
        results.append(module(part)[: len(batch) - done])
        done += size
    return results


def runs_of(module: Any, batch: Array) -> Runs:
    """Return the module's runs for a batch that it has computed before."""
    signature = module._session.signatures.of([batch])
    if not module._batches.does(signature):
        return (len(batch),)
    found: Runs = module._batches._plans(signature).runs.all(len(batch))
    return found


def in_turns(sides: Mapping[str, Callable[[], Any]], times: dict[str, list[float]]) -> None:
    """Call every side once, in random order, so that caches favour no side."""
    for name in random.sample([*sides], len(sides)):
        start = time.perf_counter()
        sides[name]()
        times.setdefault(name, []).append(time.perf_counter() - start)


def measure(module: Module, sizes: Sequence[int], most: int, row: Array, rounds: int) -> None:
    """Print the time of every batch up to ``most`` rows, and the worst ones.

    Parameters
    ----------
    sizes : sequence of int
        The rows of the module's plans, in the order of its signatures, 1 among them.
    row : array
        An input of one row.
    """
    rows = np.random.default_rng(1).random((max(most, *sizes), *row.shape[1:]), row.dtype)
    of_plans: dict[str, list[float]] = {}
    plans = {
        str(size): partial(module.run_plan, number, [rows[:size]])
        for number, size in enumerate(sizes)
    }
    for _ in range(rounds + 1):
        in_turns(plans, of_plans)
    seconds = {size: statistics.median(of_plans[str(size)][1:]) for size in sizes}
    batches = []
    for count in range(1, most + 1):
        module(rows[:count])  # measures plans when the first comes
        own = runs_of(module, rows[:count])
        others = [some for some in all_runs(sizes, count) if some != own]
        batches.append(Batch(count, own, min(others, key=partial(of_all, seconds), default=own)))
    for _, batch in itertools.product(range(rounds), batches):
        given = rows[: batch.rows]
        sides: dict[str, Callable[[], Any]] = {
            "own": partial(module, given),
            "other": partial(composed, module, batch.other, given),
            "one": partial(module, row),
            **plans,
        }
        in_turns(sides, batch.times)
    tell(batches, sizes)


def tell(batches: Sequence[Batch], sizes: Sequence[int]) -> None:
    """Print a line for each batch, and two of the worst."""
    took = {size: statistics.median(one.seconds(str(size)) for one in batches) for size in sizes}
    print(", ".join(f"{1000 * each:.2f} ms a batch of {size}" for size, each in took.items()))
    print("\n| batch | runs | ms an image | of batch 1's speed | of the best's | the other |")
    print("| ---: | --- | ---: | ---: | ---: | --- |")
    singly, best = {}, {}
    for batch in batches:
        least = min(all_runs(sizes, batch.rows), key=partial(of_all, took))
        singly[batch.rows] = batch.beside({"one": batch.rows})
        best[batch.rows] = min(
            *(1.0, batch.beside({"other": 1})), batch.beside(Counter(str(size) for size in least))
        )
        columns = (
            *(batch.rows, plus(batch.runs), f"{1000 * batch.seconds('own') / batch.rows:.3f}"),
            *(f"{singly[batch.rows]:.3f}", f"{best[batch.rows]:.3f}", plus(batch.other)),
        )
        print(f"| {' | '.join(map(str, columns))} |")
    for what, found in (("batch 1's speed", singly), ("the best composition's speed", best)):
        worst = min(found, key=lambda rows: found[rows])
        middle = statistics.median(found.values())
        print(f"\n{what}: median {middle:.3f}, worst {found[worst]:.3f}, batch {worst}", end="")
    print()


def of_all(seconds: Mapping[int, float], runs: Runs) -> float:
    """Return the total time of runs."""
    return sum(seconds[size] for size in runs)


def plus(runs: Runs) -> str:
    """Return runs as text."""
    return " + ".join(f"{n} x {rows}" if n > 1 else str(rows) for rows, n in Counter(runs).items())
