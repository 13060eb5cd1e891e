"""``neocpu bench``: how fast models are, beside other engines and beside the machine's limits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import bench_page, bench_solvers, bench_strategies, options
from neocpu.cli.bench_page import Known, Page
from neocpu.cli.networks import with_suite
from neocpu.cli.terminal import Terminal
from neocpu.schedules.errors import AccuracyError, NeoCPUError, UsageError, did_you_mean
from neocpu.units import plural

if TYPE_CHECKING:
    from neocpu.bench.document import Run
    from neocpu.bench.report import ModelFailure, ModelReport, SuiteReport
    from neocpu.bench.suite import Request
    from neocpu.bench.tables import Table

EPILOG = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino,ncnn
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench net.onnx --ablation --kernels --markdown > results.md
  neocpu bench resnet50 --vs onnxruntime --threads 1,2,4 --chart scaling.svg
  neocpu bench --suite paper --vs onnxruntime,openvino --roofline -o bench.md
  neocpu bench --suite all --solvers -o search.md
  neocpu bench resnet50 --strategies --db tuned.jsonl -o tuning.md"""

ARGUMENTS = "neocpu.bench.arguments"


class ThreadCounts(click.ParamType[tuple[int, ...]]):
    """``4``, or a list such as ``1,2,4``; ascending and without repetitions."""

    name = "threads"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the counts."""
        words = str(value).split(",")
        if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
            self.fail(f"'{value}' is not a number of threads, or a list such as 1,2,4", param, ctx)
        return tuple(sorted({int(word) for word in words}))


class RecordingCommand(click.Command):
    """Keeps the arguments as they were given, for the document to print."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep and parse."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go besides standard output.

    Attributes
    ----------
    document, chart : Path or None
    markdown : bool
        Print tables in Markdown.
    """

    document: Path | None
    chart: Path | None
    markdown: bool

    def chart_paths(self) -> tuple[Path, ...]:
        """Return where charts go: beside the document too."""
        beside = (self.document.with_suffix(".svg"),) if self.document else ()
        return (*beside, *((self.chart,) if self.chart else ()))


@click.command(cls=RecordingCommand, epilog=EPILOG)
@click.argument("models", metavar="[MODEL|OUT.so]…", nargs=-1)
@click.option(
    "--suite",
    metavar="NAME",
    help="Measure all networks of a suite: paper, deployed or all.",
)
@click.option(
    "--vs",
    "peers",
    type=options.Names(),
    default=None,
    metavar="A,B,…",
    help="Engines to compare with: onnxruntime, openvino, ncnn.",
)
@click.option(
    "--model",
    "source",
    metavar="FILE.onnx",
    help="The model OUT.so was compiled from, which the other engines run.",
)
@click.option(
    "--threads",
    type=ThreadCounts(),
    metavar="N[,N…]",
    help="Threads to use; by default the CPUs this process may use. A list also measures how "
    "engines scale.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=12,
    show_default=True,
    metavar="N",
    help="Rounds in which all engines run in turn.",
)
@options.shape
@options.databases
@click.option("--ablation", is_flag=True, help="Also measure every level of compile --opt.")
@click.option(
    "--untuned", is_flag=True, help="Also measure the model compiled without any tuning record."
)
@click.option(
    "--kernels", is_flag=True, help="Also measure every convolution against the FMA peak."
)
@click.option("--cold-start", is_flag=True, help="Also measure process start to first output.")
@click.option(
    "--roofline", is_flag=True, help="Also measure the machine's limits, and how near models come."
)
@click.option(
    "--solvers",
    is_flag=True,
    help="Compare the solvers of the layout search instead: nothing is compiled or run.",
)
@click.option(
    "--milp-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="S",
    help="With --solvers, the time HiGHS may take for each model.",
)
@click.option(
    "--strategies",
    is_flag=True,
    help="Compare the strategies of tune instead, from nothing and, with --db, from the records of "
    "other models: minutes for each MODEL.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="With --strategies, the runs of each.",
)
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="Write all results as a document, with charts beside it.",
)
@click.option(
    "--chart",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw a chart: .svg, .png or .pdf.",
)
@options.common
def command(
    terminal: Terminal,
    models: tuple[str, ...],
    suite: str | None,
    peers: tuple[str, ...] | None,
    source: str | None,
    threads: tuple[int, ...] | None,
    rounds: int,
    shapes: Mapping[str, tuple[int, ...]],
    databases: tuple[Path, ...],
    markdown: bool,
    output: Path | None,
    chart: Path | None,
    solvers: bool,
    milp_seconds: float,
    strategies: bool,
    seeds: int,
    **extras: bool,
) -> int:
    """Measure latency: of a MODEL, compiled first, or of an OUT.so that neocpu compile wrote.

    Every engine runs in a process of its own, in float32 and on the same number of threads; their
    outputs are compared too.
    """
    from neocpu.bench.suite import Request

    names = _models(models, suite, source)
    counts = _threads(threads)
    if solvers or strategies:
        unrelated = {"vs": peers, "model": source, "chart": chart, "threads": counts[1:], **extras}
        given = [f"--{name.replace('_', '-')}" for name in unrelated if unrelated[name]]
        bench_page.check("--solvers" if solvers else "--strategies", names, output, given)
        subject = f"the {suite} suite" if suite else ", ".join(names)
        page = Page(subject, _command_line(), output, markdown)
        known = Known(counts[-1], databases, shapes)
        if solvers:
            return bench_solvers.compare(terminal, names, known, milp_seconds, page)
        return bench_strategies.compare(terminal, names, known, seeds, page)
    outputs = Outputs(output, chart, markdown)
    _check_outputs(terminal, outputs, comparing=bool(peers) or len(counts) > 1)
    available = _available(terminal, peers or ())
    missing = tuple(peer for peer in peers or () if peer not in available)
    _warn_of_few(
        terminal,
        rounds,
        comparing=bool(available) or len(counts) > 1 or extras["ablation"] or extras["untuned"],
    )
    request = Request(available, counts, rounds, databases, shapes, source, **extras)
    title = f"Benchmark of the {suite} suite" if suite else f"Benchmark of {', '.join(names)}"
    return _run(terminal, names, request, outputs, title, missing)


def _models(models: tuple[str, ...], suite: str | None, source: str | None) -> tuple[str, ...]:
    """Return all models to measure; find wrong names before anything is measured."""
    from neocpu.bench.suite import is_artifact

    artifacts = [model for model in models if is_artifact(model)]
    if source is not None and (suite or len(models) != 1 or not artifacts):
        raise UsageError("--model goes with one OUT.so: it names the model that was compiled")
    if suite is not None and artifacts:
        raise UsageError(
            f"--suite compiles its networks itself: measure {artifacts[0]} by a command of its own"
        )
    return with_suite(models, suite)


def _threads(counts: tuple[int, ...] | None) -> tuple[int, ...]:
    from neocpu.schedules.host import usable_cpus

    usable = usable_cpus()
    if counts is not None and counts[-1] > usable:
        raise UsageError(
            f"--threads {counts[-1]} is more than this process may use: {plural(usable, 'CPU')}"
        )
    return counts or (usable,)


def _available(terminal: Terminal, peers: Sequence[str]) -> tuple[str, ...]:
    """Return the peers that are installed, and say how to install the others."""
    from neocpu.bench.engines import PEERS, install_hint, installed

    for peer in peers:
        if peer not in PEERS:
            hint = did_you_mean(peer, PEERS)
            raise UsageError(f"no engine '{peer}' for --vs; known: {', '.join(PEERS)}{hint}")
    for peer in peers:
        if not installed(peer):
            terminal.note(f"{peer} is not installed, skipped: {install_hint(peer)}")
    return tuple(dict.fromkeys(peer for peer in peers if installed(peer)))


def _warn_of_few(terminal: Terminal, rounds: int, *, comparing: bool) -> None:
    from neocpu.bench.statistics import ENOUGH_ROUNDS

    if comparing and rounds < ENOUGH_ROUNDS:
        terminal.note(
            f"--rounds {rounds}: with fewer than {ENOUGH_ROUNDS} the 95 % intervals are too narrow"
        )


def _check_outputs(terminal: Terminal, outputs: Outputs, *, comparing: bool) -> None:
    """Find out what cannot be written before minutes are spent on measuring."""
    from neocpu.bench import chart
    from neocpu.link import check_destination

    bench_page.check_document(outputs.document)
    if outputs.chart is not None:
        chart.check_suffix(outputs.chart)
        if not comparing:
            raise UsageError("--chart compares: name engines with --vs, or several --threads")
    for path in outputs.chart_paths():
        check_destination(path)
    if outputs.chart_paths() and not chart.available():
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")


def _run(
    terminal: Terminal,
    models: Sequence[str],
    request: Request,
    outputs: Outputs,
    title: str,
    missing: tuple[str, ...],
) -> int:
    """Measure, print and write; return the exit code."""
    from neocpu.bench.document import Run
    from neocpu.bench.machine import describe

    run = Run(_command_line(), describe(), request.peers, request.threads, request.rounds, missing)
    report, interrupted = _measure(terminal, models, request)
    if report.models or len(models) > 1:
        document = {
            "command": run.command,
            "machine": run.machine.to_json(),
            "not_installed": run.missing,
            **report.to_json(),
        }
        terminal.result(
            document,
            lambda: bench_page.show(_tables(report, run, outputs), markdown=outputs.markdown),
        )
    if interrupted:
        terminal.kept = lambda: f"{len(report.models)} of {plural(len(models), 'model')} measured"
        raise KeyboardInterrupt
    if report.models:
        _write(terminal, report, run, outputs, title)
    return _exit_code(terminal, models, report)


def _command_line() -> str:
    arguments = click.get_current_context().meta[ARGUMENTS]
    return shlex.join(["neocpu", "bench", *arguments])


def _measure(
    terminal: Terminal, models: Sequence[str], request: Request
) -> tuple[SuiteReport, bool]:
    """Measure all models; return what came out, and whether that was interrupted."""
    from neocpu.bench.report import ModelReport, SuiteReport
    from neocpu.bench.suite import measure_models

    done: list[ModelReport] = []
    failed: list[ModelFailure] = []
    interrupted = False
    try:
        with terminal.progress() as on_progress:
            for outcome in measure_models(models, request, on_progress):
                if isinstance(outcome, ModelReport):
                    done.append(outcome)
                else:
                    failed.append(outcome)
                if len(models) > 1:
                    terminal.note(str(outcome))
    except KeyboardInterrupt:
        interrupted = True
    return SuiteReport(tuple(done), tuple(failed)), interrupted


def _write(terminal: Terminal, report: SuiteReport, run: Run, outputs: Outputs, title: str) -> None:
    """Write document and charts, as far as there is something to draw."""
    from neocpu.bench import chart, document

    drawn = {}
    if chart.available():
        for path in outputs.chart_paths():
            drawn[path] = chart.draw(path, report.models, run.machine, run.threads)
            for file in drawn[path].values():
                terminal.note(f"written: {file}")
            if not drawn[path]:
                terminal.note(f"not drawn, as no peer has a result: {path}")
    if outputs.document is not None:
        beside = drawn.get(outputs.document.with_suffix(".svg"), {})
        links = {words: path.name for words, path in beside.items()}
        text = document.render(title, report, run, links)
        bench_page.write(terminal, outputs.document, text)


def _tables(report: SuiteReport, run: Run, outputs: Outputs) -> list[Table]:
    from neocpu.bench import suite_tables

    names = {model.name for model in report.models} | {one.name for one in report.failures}
    if len(names) == 1:
        return suite_tables.model_tables(report.models[0])
    tables = suite_tables.tables(report, run.peers)
    return tables + suite_tables.details(report.models) if outputs.markdown else tables


def _exit_code(terminal: Terminal, models: Sequence[str], report: SuiteReport) -> int:
    """Report failures: of a single model as its own error, else by name; then wrong outputs."""
    if not report.failures:
        wrong = [model.name for model in report.models if model.own and not model.own.agrees]
        if not wrong:
            return 0
        return terminal.fail(
            f"wrong outputs of neocpu: {', '.join(wrong)}", AccuracyError.exit_code
        )
    first = report.failures[0].error
    if len(models) == 1:
        raise first
    names = ", ".join(dict.fromkeys(failure.name for failure in report.failures))
    code = first.exit_code if isinstance(first, NeoCPUError) else 1
    return terminal.fail(f"{names} failed; the other results stand", code)
