"""The whole benchmark as one Markdown document, with all that is needed to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neocpu.bench import suite_tables
from neocpu.bench.machine import MachineInfo
from neocpu.bench.report import SuiteReport
from neocpu.bench.statistics import ENOUGH_ROUNDS

METHOD: Final = (
    "Every engine runs in a process of its own, in float32 and on the same number of threads, on "
    "the same inputs. A process is stopped (SIGSTOP) unless it is its turn, so that no engine's "
    "threads spin into another's time. After a warm-up the engines run in {rounds} interleaved "
    "rounds, in an order drawn anew for each. Latencies are medians over all runs; the interval of "
    "a ratio is a bootstrap over whole rounds."
)
COMPARISON: Final = (
    "All outputs are compared with those of {reference}, and one that differs is marked wrong. A "
    "ratio above 1 means that neocpu is faster than the fastest peer whose outputs are right."
)


@dataclass(frozen=True, slots=True)
class Run:
    """How and where a benchmark was run.

    Attributes
    ----------
    command : str
        The command line.
    machine : MachineInfo
    peers : tuple of str
        Engines that were compared with.
    threads : tuple of int
    rounds : int
    missing : tuple of str
        Engines that were asked for and are not installed.
    """

    command: str
    machine: MachineInfo
    peers: tuple[str, ...]
    threads: tuple[int, ...]
    rounds: int
    missing: tuple[str, ...] = ()


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
        _method(run),
        [
            "## Results",
            *(f"![{words}]({path})" for words, path in charts.items()),
            *(table.markdown().rstrip() for table in suite_tables.tables(report, run.peers)),
            "## Details",
            *(table.markdown().rstrip() for table in suite_tables.details(report.models)),
        ],
    )


def page(title: str, run: Run, method: str, results: Sequence[str]) -> str:
    """Return a document of ``results`` that says how and where they were measured."""
    parts = [
        f"# {title}",
        "This file was written by the command below; run it again to rewrite it for your machine.",
        f"```\n{run.command}\n```",
        "## Machine and versions",
        _bullets(_facts(run)),
        "## Method",
        method,
        *results,
    ]
    return "\n\n".join(parts) + "\n"


def _facts(run: Run) -> list[str]:
    machine = run.machine
    caches = ", ".join(f"{name} {_binary(size)}" for name, size in machine.caches.items())
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return [
        f"Date: {machine.date}",
        f"CPU: {machine.cpu}, {machine.cpus} usable",
        *([f"Caches: {caches}"] if caches else []),
        f"Memory: {_binary(machine.memory)}",
        f"System: {machine.system}, Python {machine.python}",
        f"Versions: {versions}",
        f"Threads: {', '.join(map(str, run.threads))}",
        *([f"Not installed, so not compared: {', '.join(run.missing)}"] if run.missing else []),
    ]


def _method(run: Run) -> str:
    words = METHOD.format(rounds=run.rounds)
    if run.peers:
        words += " " + COMPARISON.format(reference=run.peers[0])
    return words + _doubt(run.rounds)


def _doubt(rounds: int) -> str:
    """Return what is to be said of intervals from so few rounds; nothing if they are enough."""
    if rounds >= ENOUGH_ROUNDS:
        return ""
    return f" With fewer than {ENOUGH_ROUNDS} rounds the intervals are narrower than the truth."


def _binary(size: int) -> str:
    """Return bytes as ``32 KiB``, ``1 MiB`` or ``23.4 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size / 1024:g} KiB"


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
