"""The cost of a set of shapes, compared with artifacts of each shape alone.

``python -m tests.set_race [NETWORK [N,C,H,W …]] [--rounds N] [--loads N] [--calls N]`` compiles a
built-in network for a set of shapes, by default of batches 1, 2, 4 and 8, and for each by itself.
The program prints the file's bytes beside those of the first shape's artifact; the speed of each
plan, in turns with the artifact of that shape alone; the first call after another shape's, beside
later calls; and the memory of the process before and after the calls of all shapes (10,000 take
five minutes for ResNet-50, two for ``resnet18``). Speeds are medians and, in brackets, fastest
calls; each is the median over several loads, because the speed depends on the memory's place.

``--batches N`` prints, for every batch from 1 to N, how fast the module composes it from the set's
plans, beside one row after the other and beside the best of all compositions: see
`tests.set_race.batches`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

import neocpu
from neocpu.foundation.host import usable_cpus
from neocpu.frontend.models import build
from tests.set_race.batches import measure

Shape: TypeAlias = "tuple[int, ...]"
TURN = 4
"""Calls of one shape, or of one side, in a row."""


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the relative speed of ``one``: by medians, and by the fastest calls."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        sides = list(zip((one, other), times, strict=True))
        for call, taken in reversed(sides) if turn % 2 else sides:
            call()
            taken += [seconds(call) for _ in range(TURN)]
    ours, theirs = times
    return statistics.median(theirs) / statistics.median(ours), min(theirs) / min(ours)


def raced(one: Path, other: Path, data: Any, asked: argparse.Namespace) -> tuple[float, ...]:
    """Return `race` of two artifacts on an input, as the median over several loads."""
    found = []
    for turn in range(asked.loads):
        paths = (other, one) if turn % 2 else (one, other)
        with ExitStack() as stack:
            load = partial(neocpu.load, threads=asked.threads)
            modules = {path: stack.enter_context(load(path)) for path in paths}
            sides = (partial(modules[path], data) for path in (one, other))
            found.append(race(*sides, -(-asked.rounds // asked.loads)))
    return tuple(statistics.median(each) for each in zip(*found, strict=True))


def switched(calls: dict[Shape, Callable[[], Any]], rounds: int) -> dict[Shape, float]:
    """Return the time of the first call after another shape's, relative to the others' median."""
    first: dict[Shape, list[float]] = {shape: [] for shape in calls}
    others: dict[Shape, list[float]] = {shape: [] for shape in calls}
    order = [*calls] * rounds
    random.Random(0).shuffle(order)
    for before, shape in itertools.pairwise(order):
        calls[before]()
        taken = [seconds(calls[shape]) for _ in range(TURN)]
        if before != shape:
            first[shape].append(taken.pop(0))
        others[shape] += taken
    return {one: statistics.median(first[one]) / statistics.median(others[one]) for one in calls}


def resident() -> float:
    """Return the process's memory in MB."""
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) / 1000


def shape(text: str) -> Shape:
    """Parse a shape."""
    return tuple(map(int, text.split(",")))


def compiled(
    network: str, shapes: list[Shape], threads: int, path: Path, *, verify: bool = False
) -> None:
    """Compile a network for one or several shapes; verification also times batches."""
    signatures = [{"input": each} for each in shapes]
    with neocpu.compile(network, shapes=signatures, threads=threads, verify=verify) as made:
        made.export(path)


def image_of(network: str) -> Shape:
    """Return the shape of a network's input."""
    (image,) = build(network).graph.input
    return tuple(d.dim_value for d in image.type.tensor_type.shape.dim)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.set_race")
    parser.add_argument("network", nargs="?", default="resnet50")
    parser.add_argument("shapes", nargs="*", type=shape, metavar="N,C,H,W")
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--batches", type=int, metavar="N")
    asked = parser.parse_args()
    own = image_of(asked.network)
    shapes = asked.shapes or [(batch, *own[1:]) for batch in (1, 2, 4, 8)]
    with TemporaryDirectory() as folder:
        of_all = Path(folder) / "set.so"
        start = time.process_time()
        options = {"verify": bool(asked.batches)}
        took = seconds(lambda: compiled(asked.network, shapes, asked.threads, of_all, **options))
        print(f"compiled in {took:.1f} s, {time.process_time() - start:.1f} s of this process")
        if asked.batches:
            with neocpu.load(of_all, threads=asked.threads) as whole:
                sizes = [each[0] for each in shapes]
                row = np.zeros((1, *shapes[0][1:]), np.float32)
                measure(whole, sizes, asked.batches, row, asked.rounds)
            return
        compare(asked, shapes, of_all)


def compare(asked: argparse.Namespace, shapes: list[Shape], of_all: Path) -> None:
    """Compare a set with artifacts of each shape alone."""
    alone = {each: of_all.with_name(f"{number}.so") for number, each in enumerate(shapes)}
    for each, path in alone.items():
        compiled(asked.network, [each], asked.threads, path)
    size, first_size = (path.stat().st_size for path in (of_all, alone[shapes[0]]))
    whole = neocpu.load(of_all, threads=asked.threads)
    print(f"{size / 1e6:.1f} MB, {size / first_size:.2f} of the first shape's alone")
    print(f"weights packed in {whole.packing_seconds:.2f} s, when it was loaded\n")
    data = {each: np.random.default_rng(0).random(each, np.float32) for each in shapes}
    calls = {each: partial(whole, data[each]) for each in shapes}
    speeds = {each: raced(of_all, path, data[each], asked) for each, path in alone.items()}
    after = switched(calls, asked.rounds)
    print("| shape | times as fast as alone | first call after another shape's |")
    print("| --- | ---: | ---: |")
    for each, (median, fastest) in speeds.items():
        name = "x".join(map(str, each))
        print(f"| {name} | {median:.3f} ({fastest:.3f}) | {after[each]:.2f} |")
    before = resident()
    for each in itertools.islice(itertools.cycle(shapes), asked.calls):
        calls[each]()
    print(f"\n{before:.1f} MB resident, {resident():.1f} MB after {asked.calls} calls")


if __name__ == "__main__":
    main()
