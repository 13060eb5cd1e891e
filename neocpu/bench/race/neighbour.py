"""Latency beside processes that keep CPUs busy, as a server's other jobs do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neocpu.bench.engines.contenders import OWN, Contender
from neocpu.bench.engines.engine_session import Inputs
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.results.sample_statistics import Ratio, ratio_of_medians
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.foundation.python_child import program_command


@dataclass(frozen=True, slots=True)
class NeighbourReport:
    """The same contenders with the CPUs to themselves, and beside busy processes.

    Attributes
    ----------
    processes : int
        How many were busy, each with one CPU at most.
    alone, beside : LatencyReport
    """

    processes: int
    alone: LatencyReport
    beside: LatencyReport

    def loss(self, label: str) -> Ratio | None:
        """Return a contender's latency beside the others over that alone; None if it failed."""
        alone, beside = self.alone.find(label), self.beside.find(label)
        if alone is None or beside is None:
            return None
        return ratio_of_medians(beside.rounds, alone.rounds, self.beside.seed, paired=False)

    @property
    def smallest_loss(self) -> tuple[str, Ratio] | None:
        """The peer that loses least, and what it loses."""
        labels = (result.label for result in self.beside.results if result.label != OWN)
        losses = ((label, loss) for label in labels if (loss := self.loss(label)) is not None)
        return min(losses, key=lambda pair: pair[1].value, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; what was measured alone is the report's latency."""
        losses = {result.label: self.loss(result.label) for result in self.beside.results}
        return {
            "processes": self.processes,
            "beside": self.beside.to_json(),
            "losses": {label: loss and asdict(loss) for label, loss in losses.items()},
        }


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have processes compute without end meanwhile, at the priority of any other."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(program_command("while True: pass"))
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def measure_neighbour(
    contenders: Sequence[Contender],
    inputs: Inputs,
    alone: LatencyReport,
    processes: int,
    options: LatencyOptions,
    workspace: Path,
    on_progress: ProgressCallback = silent,
) -> NeighbourReport:
    """Measure beside busy processes what was measured ``alone``, on as many threads."""
    with busy_processes(processes):
        beside = measure_latency(
            contenders,
            inputs,
            alone.threads,
            options,
            reference=alone.reference,
            workspace=workspace,
            on_progress=on_progress,
        )
    return NeighbourReport(processes, alone, beside)
