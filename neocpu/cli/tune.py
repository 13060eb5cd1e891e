"""``neocpu tune``: measure convolution schemes, for later compilations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.cli.databases import tell_what_is_kept, writable_database
from neocpu.cli.networks import with_suite
from neocpu.cli.plan_text import scheme_text
from neocpu.cli.terminal import Terminal, print_table
from neocpu.units import duration, plural

if TYPE_CHECKING:
    from neocpu.search.tuner import TaskReport, TuneReport

EPILOG = """\b
Examples:
  neocpu tune resnet50 --budget 90s
  neocpu tune resnet50 densenet121 --db tuned.jsonl
  neocpu tune --suite paper --budget 1h
  neocpu compile resnet50 --db tuned.jsonl"""


@click.command(epilog=EPILOG)
@click.argument("models", nargs=-1, metavar="[MODEL]…")
@click.option(
    "--suite",
    metavar="NAME",
    help="Tune all networks of a suite together: paper, deployed or all.",
)
@options.target
@options.shape
@options.threads
@click.option(
    "--db",
    "database",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The tuning database to write to; by default your own.",
)
@click.option(
    "--strategy",
    default="grid",
    show_default=True,
    metavar="NAME",
    help="What to measure next: grid (all, best estimates first) or random.",
)
@click.option(
    "--budget",
    type=options.Duration(),
    metavar="TIME",
    help="Stop after 90, 60s, 10m, 1h; by default when all is measured.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N measurements.",
)
@options.common
def command(
    terminal: Terminal,
    models: tuple[str, ...],
    suite: str | None,
    target: str,
    shapes: Mapping[str, tuple[int, ...]],
    threads: int | None,
    database: Path | None,
    strategy: str,
    budget: float | None,
    trials: int | None,
) -> None:
    """Measure the convolution schemes of each MODEL that no tuning database knows yet.

    All models are tuned together: convolutions they share are measured once, and --budget is for
    all. Each measurement is kept as it is made: Ctrl-C loses nothing, and nothing is measured
    twice.
    """
    networks = with_suite(models, suite)
    databases = () if database is None else (database,)
    tell_what_is_kept(terminal, databases)
    with terminal.progress() as on_progress:
        import neocpu

        tuned = neocpu.tune(
            networks,
            target=target,
            threads=threads,
            shapes=shapes,
            database=database,
            strategy=strategy,
            budget=budget,
            trials=trials,
            on_progress=on_progress,
        )
    report = _report(tuned, writable_database(databases))
    terminal.result(report, lambda: None if terminal.quiet else _show(report))


def _report(tuned: TuneReport, database: Path) -> dict[str, Any]:
    return {
        "database": str(database),
        "seconds": tuned.seconds,
        "measured": tuned.measured,
        "reused": tuned.reused,
        "failed": tuned.failed,
        "left": tuned.left,
        "workloads": [_workload(task) for task in tuned.tasks],
    }


def _workload(report: TaskReport) -> dict[str, Any]:
    best = report.best
    return {
        "workload": str(report.task.workload),
        "count": report.task.count,
        "measured": report.measured,
        "reused": report.reused,
        "failed": report.failed,
        "left": report.left,
        "best_us": None if best is None else best.result.best * 1e6,
        "gflops": None if best is None else report.task.workload.flops / best.result.best / 1e9,
        "scheme": None if best is None else best.scheme.to_json(),
    }


def _show(report: Mapping[str, Any]) -> None:
    print_table(
        (
            "workload",
            "times",
            "best scheme",
            "µs",
            "GFLOP/s",
            "measured",
            "known",
            "failed",
            "left",
        ),
        [
            (
                row["workload"],
                str(row["count"]),
                scheme_text(row["scheme"]),
                "-" if row["best_us"] is None else f"{row['best_us']:.1f}",
                "-" if row["gflops"] is None else f"{row['gflops']:.0f}",
                *(str(row[key]) for key in ("measured", "reused", "failed", "left")),
            )
            for row in report["workloads"]
        ],
        right=("times", "µs", "GFLOP/s", "measured", "known", "failed", "left"),
    )
    print(
        f"\n{plural(report['measured'], 'measurement')} in {duration(report['seconds'])}, "
        f"kept in {report['database']}"
    )
