"""A race as one Markdown document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neocpu.bench.race import suite_tables
from neocpu.bench.race.report import SuiteReport
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.sample_statistics import ENOUGH_ROUNDS

METHOD: Final = (
    "Every engine runs in a process of its own, in float32 if the command names nothing else, on "
    "the same number of threads and the same inputs. A process is stopped (SIGSTOP) unless it is "
    "its turn, so that no engine's threads spin into another's time. After a warm-up the engines "
    "run in {rounds} interleaved rounds, in an order drawn anew for each. Latencies are medians "
    "over all runs; the interval of a ratio is a bootstrap over whole rounds."
)
COMPARISON: Final = (
    "All outputs are compared with those of {reference}, or of neocpu in float32 where that runs "
    "beside them, and one that differs is marked wrong. A ratio above 1 means that neocpu is "
    "faster than the fastest peer whose outputs are right."
)


def render(title: str, report: SuiteReport, run: Run, charts: Mapping[str, str]) -> str:
    """Return the document.

    Parameters
    ----------
    charts : mapping of str to str
        What each chart shows, and its path as seen from the document.
    """
    return page(
        title,
        run,
        method(run),
        [
            "## Results",
            *(f"![{words}]({path})" for words, path in charts.items()),
            *(table.markdown().rstrip() for table in suite_tables.tables(report, run.peers)),
            "## Details",
            *(table.markdown().rstrip() for table in suite_tables.details(report.models)),
        ],
    )


def method(run: Run) -> str:
    """Return how it was measured."""
    words = METHOD.format(rounds=run.rounds)
    if run.peers:
        words += " " + COMPARISON.format(reference=run.peers[0])
    return words + _doubt(run.rounds)


def _doubt(rounds: int) -> str:
    """Return what is to be said of intervals from so few rounds; nothing if they are enough."""
    if rounds >= ENOUGH_ROUNDS:
        return ""
    return f" With fewer than {ENOUGH_ROUNDS} rounds the intervals are narrower than the truth."
