"""Single operators beside ONNX Runtime: ``python -m tests.operator_race [WORD …] [--rounds N]``.

Each is a model of one operator, or of a few that belong together, on random data, run in turns with
ONNX Runtime on two threads. What is told is how many times as fast neocpu is, by medians, without
what a call takes of a model that does nothing; then the geometric mean, and which are below 0.8.
With words, only those whose names have one of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime

import neocpu
from tests.operator_race.cases import Array, Case, cases, node

THREADS = 2
TURN, FEWEST = 0.004, 3
"""Seconds, and calls, of a turn at least."""
NEGLIGIBLE = 2e-6
"""What an operator takes at least: less is not to be told from what calls take."""
LEAST = 0.8
"""What no operator should be below."""

Call = Callable[[], Any]


@contextmanager
def both(case: Case) -> Iterator[tuple[Call, Call]]:
    """Yield calls of neocpu and of ONNX Runtime, on the same arrays, whose outputs agree.

    The arrays lie as `neocpu.aligned_empty` makes them; neocpu copies others first.

    Raises
    ------
    AssertionError
        If their outputs differ.
    """
    model, feeds = case.model(), {name: aligned(each) for name, each in case.feeds.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    with neocpu.compile(model, threads=THREADS, verify=False) as compiled:
        module = compiled.module(THREADS)
        found, wanted = module.run(feeds), session.run(None, feeds)
        for ours, theirs in zip(found.values(), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2, err_msg=case.name)
        yield lambda: module.run(feeds), lambda: session.run(None, feeds)


def aligned(array: Array) -> Array:
    copy = neocpu.aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def seconds(call: Call, least: float) -> float:
    """Return the median time of calls, of all that ``least`` seconds are enough for."""
    times, end = [], time.perf_counter() + least
    call()
    while len(times) < FEWEST or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def idle(rounds: int) -> list[float]:
    """Return what calls of a model take that does nothing."""
    return times_of(Case("nothing", [node("Identity", "x")], {"x": np.zeros(1, "f")}), rounds)


def times_of(case: Case, rounds: int) -> list[float]:
    """Return what a call takes here, and in ONNX Runtime: medians of rounds, in turns."""
    with both(case) as pair:
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds):
            sides = list(zip(pair, times, strict=True))
            for call, taken in reversed(sides) if turn % 2 else sides:
                taken.append(seconds(call, TURN))
    return [statistics.median(taken) for taken in times]


def ratio(case: Case, rounds: int, calls: list[float]) -> float:
    """Return how many times as fast neocpu is as ONNX Runtime, but for what calls take."""
    own, other = (
        max(taken - spent, NEGLIGIBLE)
        for taken, spent in zip(times_of(case, rounds), calls, strict=True)
    )
    return other / own


def main() -> None:
    """Print a line for each operator, then what they come to."""
    parser = argparse.ArgumentParser(prog="tests.operator_race", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    options = parser.parse_args()
    found, calls = {}, idle(options.rounds)
    print(f"a call takes {1e6 * calls[0]:.1f} us here, {1e6 * calls[1]:.1f} us there")
    for case in cases():
        if not options.words or any(word in case.name for word in options.words):
            found[case.name] = ratio(case, options.rounds, calls)
            print(f"{found[case.name]:6.2f}  {case.name}", flush=True)
    if not found:
        raise SystemExit(f"no case has {' or '.join(options.words)} in its name")
    slow = sorted(name for name, fast in found.items() if fast < LEAST)
    print(f"{statistics.geometric_mean(found.values()):6.2f}  geometric mean of {len(found)}")
    print(f"{len(slow)} below {LEAST}: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
