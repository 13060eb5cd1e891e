"""Single operators beside ONNX Runtime: ``python -m tests.operator_race [WORD …] [--rounds N]``.

Each case is a model of one operator, or of a few that belong together, on random data. It runs in
turns with ONNX Runtime on two threads. The program prints how many times as fast neocpu is, by
medians, after subtracting the time of a model that does nothing with as many inputs; then the
geometric mean, and the cases below 0.8. Words select the cases whose names contain one of them.
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
REST = 0.005
"""Seconds before a turn, in which the other side's threads may still spin."""
NEGLIGIBLE = 2e-6
"""The least seconds of an operator: shorter times vanish in the cost of calls."""
LEAST = 0.8
"""No operator should be below this ratio."""

Call = Callable[[], Any]


@contextmanager
def both(case: Case) -> Iterator[tuple[Call, Call]]:
    """Yield calls of neocpu and of ONNX Runtime on the same arrays, after comparing their outputs.

    The arrays lie as `neocpu.aligned_empty` makes them; neocpu copies others first.
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
    """Return the median time of as many calls as take ``least`` seconds."""
    time.sleep(REST)
    call()
    times, end = [], time.perf_counter() + least
    while len(times) < FEWEST or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def idle(inputs: int, rounds: int) -> list[float]:
    """Return the time of calls of a model that does nothing with a number of inputs."""
    names = [f"x{number}" for number in range(inputs)]
    feeds = {name: np.zeros(1, "f") for name in names}
    return times_of(Case("nothing", [node("Identity", names[0])], feeds), rounds)


def times_of(case: Case, rounds: int) -> list[float]:
    """Return the times of a call here and in ONNX Runtime: medians of rounds, in turns."""
    with both(case) as pair:
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds):
            sides = list(zip(pair, times, strict=True))
            for call, taken in reversed(sides) if turn % 2 else sides:
                taken.append(seconds(call, TURN))
    return [statistics.median(taken) for taken in times]


def ratio(case: Case, rounds: int, calls: list[float]) -> float:
    """Return neocpu's speed relative to ONNX Runtime's, without the cost of calls."""
    own, other = (
        max(taken - spent, NEGLIGIBLE)
        for taken, spent in zip(times_of(case, rounds), calls, strict=True)
    )
    return other / own


def main() -> None:
    """Print a line for each operator, then a summary."""
    parser = argparse.ArgumentParser(prog="tests.operator_race", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    options = parser.parse_args()
    found: dict[str, float] = {}
    calls: dict[int, list[float]] = {}
    for case in cases():
        if not options.words or any(word in case.name for word in options.words):
            inputs = len(case.feeds)
            if inputs not in calls:
                calls[inputs] = idle(inputs, options.rounds)
                here, there = (1e6 * each for each in calls[inputs])
                print(f"a call with {inputs} inputs takes {here:.1f} us here, {there:.1f} us there")
            found[case.name] = ratio(case, options.rounds, calls[inputs])
            print(f"{found[case.name]:6.2f}  {case.name}", flush=True)
    if not found:
        raise SystemExit(f"no case has {' or '.join(options.words)} in its name")
    slow = sorted(name for name, fast in found.items() if fast < LEAST)
    print(f"{statistics.geometric_mean(found.values()):6.2f}  geometric mean of {len(found)}")
    print(f"{len(slow)} below {LEAST}: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
