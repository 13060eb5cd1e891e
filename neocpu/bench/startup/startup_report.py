"""How soon an artifact serves, beside other engines, and what a second process of it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.engines.measured_model import open_subject
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.results.table import Table
from neocpu.bench.startup.coldstart import ColdStartReport, measure_cold_start
from neocpu.bench.startup.coldstart_table import cold_start_table
from neocpu.bench.startup.page_sharing import PROCESSES, SharingReport, measure_sharing
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs

METHOD: Final = (
    "A fresh process per engine and round imports numpy and the engine, opens the model, and calls "
    "it twice; engines take turns, and the first round, which reads the files from disk, does not "
    "count. Times are medians of {rounds} rounds on the system's monotonic clock, from before the "
    "process is made. Then {processes} processes run the artifact at once, and /proc/PID/smaps of "
    "each says how many of the resident pages of its weights are shared."
)


@dataclass(frozen=True, slots=True)
class StartupRequest:
    """What to measure of every artifact.

    Attributes
    ----------
    peers : tuple of str
        Engines to compare with.
    source : str or None
        The model an artifact was compiled from, which peers run.
    threads : int
    rounds : int
        Fresh processes of each engine.
    """

    peers: tuple[str, ...]
    source: str | None
    threads: int
    rounds: int


@dataclass(frozen=True, slots=True)
class StartupReport:
    """What was measured of one artifact."""

    name: str
    cold_start: ColdStartReport
    sharing: SharingReport

    def __str__(self) -> str:
        own = self.cold_start.results[0]
        return f"{self.name}: first output after {own.median:.3f} s"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; times in seconds, memory in bytes."""
        return {
            "model": self.name,
            "cold_start": self.cold_start.to_json(),
            "sharing": self.sharing.to_json(),
        }


def measure_startups(
    artifacts: Sequence[str], request: StartupRequest, on_progress: ProgressCallback = silent
) -> Iterator[StartupReport | ModelFailure]:
    """Measure each artifact; one that cannot be is a failure, and the others go on."""
    return measure_each(artifacts, lambda _, path: _measure(Path(path), request, on_progress))


def _measure(
    artifact: Path, request: StartupRequest, on_progress: ProgressCallback
) -> StartupReport:
    with TemporaryFolder("bench") as folder:
        subject = open_subject(artifact, request.source, Path(folder))
        inputs = random_inputs(subject.header.inputs, seed=0)
        report = measure_cold_start(
            subject.contenders(request.peers),
            inputs,
            request.threads,
            request.rounds,
            on_progress,
            workspace=Path(folder),
        )
    for failure in report.failures:
        if failure.label == OWN:
            raise ArtifactError(f"{artifact} does not run: {failure.reason}")
    return StartupReport(subject.name, report, measure_sharing(artifact, request.threads))


def startup_table(report: StartupReport) -> Table:
    """Return a row per engine; below it, what processes share."""
    table = cold_start_table(
        f"Startup of {report.name}, threads: {report.cold_start.threads}", report.cold_start, OWN
    )
    sharing = report.sharing
    resident = min(memory.resident for memory in sharing.weights)
    words = (
        f"Of {resident / 1e6:.1f} MB of weights resident in each of {PROCESSES} processes, "
        f"{sharing.share:.1%} are shared; a process has {sharing.own_bytes / 1e6:.0f} MB for "
        "itself."
    )
    return Table(table.title, table.header, table.rows, (*table.notes, words))


def method(run: Run) -> str:
    """Return how it was measured."""
    return METHOD.format(rounds=run.rounds, processes=PROCESSES)


def render(title: str, reports: Sequence[StartupReport], run: Run) -> str:
    """Return the document."""
    tables = [startup_table(report).markdown().rstrip() for report in reports]
    return page(title, run, method(run), ["## Results", *tables])
