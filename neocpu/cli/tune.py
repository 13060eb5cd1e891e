"""``neocpu tune``: measure convolution schemes and layout transforms, for later compilations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.cli.databases import own_and_named, report_kept_measurements, writable_database
from neocpu.cli.parsing.compiling_options import accuracy
from neocpu.cli.parsing.model_arguments import ModelName, operators, with_suite
from neocpu.foundation.console.terminal import Terminal, echo
from neocpu.foundation.errors import UsageError
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.json_codec import JsonObject, fields_to_json
from neocpu.foundation.own_process import collect_rarely
from neocpu.foundation.units import plural
from neocpu.plan.text.columns import print_columns
from neocpu.plan.text.page_file import check_page_file, write_page_file
from neocpu.plan.text.plan_text import scheme_text
from neocpu.plan.text.tuning_summary import TuningSummary, show_summary

if TYPE_CHECKING:
    from neocpu.foundation.option_words import AccuracyName, StrategyName
    from neocpu.schedules.vocabulary.scheme import Scheme
    from neocpu.search.tuner import TaskReport, Trial, TuneReport

EPILOG = """\b
Examples:
  neocpu tune resnet50 --budget 90s
  neocpu tune resnet50 densenet121 --db tuned.jsonl
  neocpu tune resnet50 --budget 90s --html tuning.html
  neocpu tune --suite paper --budget 1h
  neocpu compile resnet50 --db tuned.jsonl"""


@click.command(epilog=EPILOG)
@click.argument("models", type=ModelName(), nargs=-1, metavar="[MODEL]…")
@click.option(
    "--suite", metavar="NAME", help="Tune all networks of a suite: paper, deployed or all."
)
@options.target
@options.shape
@operators
@options.batch
@options.threads
@click.option(
    "--db",
    "database",
    type=options.PATH,
    metavar="FILE",
    help="The tuning database to write to; by default your own.",
)
@options.only_db
@click.option(
    "--strategy",
    default="xgb",
    metavar="NAME",
    help="How the next scheme to measure is chosen: xgb (by the largest gain that a cost model "
    "trained on all records expects; ends when little is left to gain), grid (all schemes, best "
    "estimates first), random, or analytic (measures nothing: shows the best estimates, for any "
    "--target).",
)
@options.seed(
    "The seed of strategies xgb and random: equal seeds and measurements give equal searches."
)
@click.option(
    "--budget",
    type=options.DURATION,
    help="Stop after this time: 90, 60s, 10m, 1h. By default tuning ends when the strategy does.",
)
@options.count(
    "--trials",
    help="Stop after N measurements, without the repeated ones that compare the winners.",
)
@accuracy
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="Measure on the servers of a TVM RPC tracker instead of on this machine; needs --key, "
    "--target and --threads. See docs/fleet.md.",
)
@click.option("--key", metavar="KEY", help="The name under which the servers are registered.")
@options.count(
    "--parallel",
    help="The number of servers to use at once; by default all that are registered under the key.",
)
@options.page
@options.common
def command(
    terminal: Terminal,
    models: tuple[str, ...],
    suite: str | None,
    target: str,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
    threads: int | None,
    database: Path | None,
    only_db: bool,
    strategy: StrategyName,
    seed: int,
    budget: float | None,
    trials: int | None,
    accuracy: AccuracyName,
    tracker: str | None,
    key: str | None,
    parallel: int | None,
    html: Path | None,
) -> None:
    """Measure the convolutions and layout transforms of each MODEL that no tuning database has.

    One --budget serves all models. A workload that several of them have is measured once, and each
    model is tuned to near its own optimum. Every measurement is written at once: Ctrl-C loses
    nothing and still writes the page, and no scheme is measured twice. At the end, schemes whose
    times are too close to tell apart are timed again in turns, and the fastest scheme of each
    convolution is checked. A summary shows how much time tuning saves; -v adds a row for each
    workload.
    """
    collect_rarely()
    networks = with_suite(models, suite)
    if tracker is not None:
        _require_explicit("target", "threads")
    databases = () if database is None else (database,)
    kept = writable_database(databases)
    check_page_file(html, (*networks, *own_and_named(databases)))
    report_kept_measurements(terminal, databases)
    import_tvm()
    title = f"Tuning of {', '.join(networks)}"
    with _page_if_interrupted(terminal, html, title, kept) as tried, terminal.progress() as shown:
        import neocpu

        tuned = neocpu.tune(
            networks,
            target=target,
            threads=threads,
            shapes=shapes,
            batch=batch,
            database=database,
            only_database=only_db,
            strategy=strategy,
            seed=seed,
            budget=budget,
            trials=trials,
            accuracy=accuracy,
            tracker=tracker,
            key=key,
            parallel=parallel,
            on_progress=shown,
            on_interrupt=tried.append,
        )
    report = _report(tuned, kept)
    _write_page(terminal, html, title, report)
    # If nothing was measured, the known schemes are the result.
    rows = terminal.verbose > 0 or not tuned.measured
    terminal.result(report, lambda: _show(report, tuned, rows=rows, quiet=terminal.quiet))


@contextmanager
def _page_if_interrupted(
    terminal: Terminal, html: Path | None, title: str, database: Path
) -> Iterator[list[TuneReport]]:
    """Write the page of the schemes in the yielded list if Ctrl-C ends the block."""
    tried: list[TuneReport] = []
    try:
        yield tried
    except KeyboardInterrupt:
        for found in tried:
            if found.measured:
                _write_page(terminal, html, f"{title}, interrupted", _report(found, database))
        raise


def _write_page(
    terminal: Terminal, html: Path | None, title: str, report: Mapping[str, Any]
) -> None:
    from neocpu.plan.result_pages.tuning_page import tuning_page

    if html is not None:
        write_page_file(terminal, html, tuning_page(title, report, scheme_text))


def _require_explicit(*names: str) -> None:
    """Raise UsageError if options have defaults: these are for this machine, not for a fleet."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
            raise UsageError(
                f"--tracker needs --{name}, because the servers may differ from this machine"
            )


def _report(tuned: TuneReport, database: Path) -> JsonObject:
    tried: dict[Any, list[Trial]] = defaultdict(list)
    for trial in tuned.trials:
        tried[trial.workload].append(trial)
    return {
        "database": str(database),
        **fields_to_json(TuningSummary.of(tuned)),
        "workloads": [_workload(task, tried[task.task.workload]) for task in tuned.tasks],
    }


def _workload(report: TaskReport, trials: Iterable[Trial]) -> JsonObject:
    workload = report.task.workload
    scheme, seconds, source = _best(report)
    return {
        "workload": str(workload),
        "count": report.task.count,
        "measured": report.measured,
        "reused": report.reused,
        "failed": report.failed,
        "left": report.left,
        "best_us": None if seconds is None else seconds * 1e6,
        "source": source,
        "noise": report.noise,
        "checked": report.checked,
        "gflops": workload.flops / seconds / 1e9 if seconds and workload.flops else None,
        "scheme": None if scheme is None else scheme.to_json(),
        "before_us": None if report.before is None else report.before * 1e6,
        "trials": list(map(_trial, trials)),
    }


def _trial(trial: Trial) -> JsonObject:
    return {
        "seconds": trial.seconds,
        "scheme": trial.scheme.to_json(),
        "repeats_us": [seconds * 1e6 for seconds in trial.result.seconds],
        "error": trial.result.error,
    }


def _best(report: TaskReport) -> tuple[Scheme | None, float | None, str | None]:
    """Return the scheme that a compilation would choose, its seconds, and their source."""
    if report.best is not None:
        return report.best.scheme, report.best.result.best, "measured"
    if report.estimate is not None:
        return *report.estimate, "estimated"
    return None, None, None


def _show(report: Mapping[str, Any], tuned: TuneReport, *, rows: bool, quiet: bool) -> None:
    if quiet:
        echo(f"{report['database']}: {plural(tuned.measured, 'new measurement')}")
        return
    if rows:
        _show_workloads(report)
        echo("")
    show_summary(TuningSummary.of(tuned), report["database"])


def _show_workloads(report: Mapping[str, Any]) -> None:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "workload": lambda row: row["workload"],
        "times": lambda row: str(row["count"]),
        "best scheme": lambda row: scheme_text(row["scheme"]),
        "µs": _microseconds,
        "noise": lambda row: "-" if row["noise"] is None else f"{row['noise']:.1%}",
        "GFLOP/s": lambda row: "-" if row["gflops"] is None else f"{row['gflops']:.0f}",
        "measured": lambda row: str(row["measured"]),
        "known": lambda row: str(row["reused"]),
        "failed": lambda row: str(row["failed"]),
        "left": lambda row: str(row["left"]),
    }
    print_columns(report["workloads"], columns, columns.keys() - {"workload", "best scheme"})


def _microseconds(row: Mapping[str, Any]) -> str:
    if row["best_us"] is None:
        return "-"
    return f"{'~' if row['source'] == 'estimated' else ''}{row['best_us']:.1f}"
