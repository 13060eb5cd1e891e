"""The cycles of one iteration of a loop by llvm-mca, LLVM's model of a CPU's pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.experiments.instructions.hot_loops import TRIPLE, multiply_adds
from tests.experiments.instructions.instruction_count import run

ITERATIONS: Final = 100
"""Enough that filling the pipelines at the start counts for little."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of a loop in its steady state, when loads hit the first-level cache.

    Attributes
    ----------
    instructions : int
        The instructions of an iteration.
    multiply_adds : float
        The multiply-adds of an iteration, in whole vectors.
    cycles : float
        The cycles of an iteration.
    """

    instructions: int
    multiply_adds: float
    cycles: float


def model(body: Sequence[str], cpu: str) -> Throughput:
    """Return the throughput of a loop on LLVM's model of ``cpu``.

    Parameters
    ----------
    body : sequence of str
        AArch64 instructions, including the branch back.

    Raises
    ------
    NeoCPUError
        ``llvm-mca`` fails.
    """
    said = run(
        [
            *("llvm-mca", f"--mtriple={TRIPLE}", f"--mcpu={cpu}", "--mattr=+all", "--json"),
            *(f"--iterations={ITERATIONS}", "-"),
        ],
        "\n".join(body) + "\n",
    )
    (region,) = json.loads(said)["CodeRegions"]
    cycles = region["SummaryView"]["TotalCycles"] / ITERATIONS
    return Throughput(len(body), sum(map(multiply_adds, body)), cycles)
