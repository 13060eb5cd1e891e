"""Latency of all engines over the number of threads (the paper's Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.engines.engine_session import Inputs
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.results.sample_statistics import Ratio, ratio_of_medians
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import plural


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """The benchmark of one model at several numbers of threads."""

    reports: Mapping[int, LatencyReport]  # a report for each number of threads, ascending

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads, ascending."""
        return tuple(self.reports)

    @property
    def labels(self) -> tuple[str, ...]:
        """All contenders with any result, in the order of the benchmark."""
        labels = (result.label for report in self.reports.values() for result in report.results)
        return tuple(dict.fromkeys(labels))

    def speedups(self, label: str) -> dict[int, Ratio]:
        """Return a contender's throughput relative to its own at its smallest number of threads.

        Numbers of threads at which it failed are absent.
        """
        found = {threads: report.find(label) for threads, report in self.reports.items()}
        results = {threads: result for threads, result in found.items() if result is not None}
        if not results:
            return {}
        base = next(iter(results.values()))
        seed = next(iter(self.reports.values())).seed
        return {
            threads: Ratio(1.0, 1.0, 1.0)
            if result is base
            else ratio_of_medians(base.rounds, result.rounds, seed, paired=False)
            for threads, result in results.items()
        }

    def to_json(self) -> JsonObject:
        """Return the JSON form: a list of reports, and each contender's speed-ups by threads."""
        return {
            "reports": [report.to_json() for report in self.reports.values()],
            "speedups": {
                label: {
                    str(threads): asdict(ratio) for threads, ratio in self.speedups(label).items()
                }
                for label in self.labels
            },
        }


def measure_scaling(
    make_contenders: Callable[[int], Sequence[Contender]],
    inputs: Inputs,
    thread_counts: Sequence[int],
    options: LatencyOptions,
    on_progress: ProgressCallback = silent,
    *,
    reference: str | None = None,
    workspace: Path | None = None,
) -> ScalingReport:
    """Measure latency at each number of threads.

    make_contenders: returns the contenders for a number of threads, for which artifacts are
        compiled.
    thread_counts: numbers of threads. Each is measured once, in ascending order.
    reference, workspace: see `neocpu.bench.race.latency.measure_latency`. Models converted for a
        peer are shared.
    """
    counts = sorted(set(thread_counts))
    reports = {}
    with TemporaryFolder("bench") as folder:
        for number, threads in enumerate(counts):
            if len(counts) > 1:
                detail = plural(threads, "thread")
                on_progress(Progress("scaling", number, len(counts), detail))
            reports[threads] = measure_latency(
                make_contenders(threads),
                inputs,
                threads,
                options,
                reference=reference,
                workspace=workspace or Path(folder),
                on_progress=on_progress,
            )
    return ScalingReport(reports)
