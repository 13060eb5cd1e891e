"""``neocpu bench race``: latencies, of models or artifacts, beside other engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views import page as bench_page
from neocpu.cli.bench_views.arguments import (
    Asked,
    Counts,
    RecordingCommand,
    check_source,
    of_models_or_artifacts,
    peers,
    rounds,
    source,
    usable_threads,
)
from neocpu.cli.bench_views.page import Page
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    from neocpu.bench.race.report import SuiteReport
    from neocpu.bench.race.suite import Request
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.table import Table


EPILOG = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino,ncnn
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench net.onnx --ablation --kernels --markdown > results.md
  neocpu bench resnet50 --vs onnxruntime --threads 1,2,4 --chart scaling.svg
  neocpu bench resnet50 --vs onnxruntime --html race.html
  neocpu bench resnet50 --vs onnxruntime,openvino --neighbour 1
  neocpu bench resnet50 --vs onnxruntime,openvino --precision auto
  neocpu bench resnet50 --vs onnxruntime,openvino --precision bf16
  neocpu bench resnet50 --vs onnxruntime,openvino --default
  neocpu bench resnet50 --vs onnxruntime,openvino --default --max-error 1e-2
  neocpu bench --suite paper --vs onnxruntime,openvino --roofline -o bench.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models_or_artifacts
@peers
@source
@click.option(
    "--threads",
    "counts",
    type=Counts("threads"),
    metavar="N[,N…]",
    help="Threads to use; by default the CPUs this process may use. A list also measures how "
    "engines scale.",
)
@rounds
@click.option(
    "--precision",
    type=options.OneOf(("int8", "auto", "bf16")),
    help="Quantise each MODEL by random data: the peers run that, neocpu too (int8), or what "
    "compile --precision auto --calibrate makes (auto). ONNX Runtime runs it with feature maps of "
    "uint8 and of int8 (s8s8), OpenVINO also what NNCF makes, where neocpu[nncf] is; the fastest "
    "counts. Or every engine in bfloat16 where it can (bf16). Errors are from float32 then.",
)
@click.option(
    "--default",
    "defaults",
    is_flag=True,
    help="Every engine as it comes out of the box: its own threads, element types and options.",
)
@click.option(
    "--max-error",
    type=click.FloatRange(min=0, min_open=True),
    metavar="E",
    help="Compile each MODEL so, and count no engine whose outputs differ more from float32, "
    "norm-wise; every engine's error is shown beside its time.",
)
@click.option("--ablation", is_flag=True, help="Also measure every level of compile --opt.")
@click.option(
    "--untuned", is_flag=True, help="Also measure the model compiled without any tuning record."
)
@click.option(
    "--kernels", is_flag=True, help="Also measure every convolution against the FMA peak."
)
@click.option(
    "--neighbour",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also measure beside N processes that keep a CPU busy each.",
)
@click.option("--cold-start", is_flag=True, help="Also measure process start to first output.")
@click.option(
    "--roofline", is_flag=True, help="Also measure the machine's limits, and how near models come."
)
@click.option(
    "--chart",
    type=options.PATH,
    metavar="FILE.svg",
    help="Draw a chart: .svg, .png or .pdf. Needs matplotlib, of neocpu[bench].",
)
def command(
    terminal: Terminal,
    asked: Asked,
    peers: tuple[str, ...] | None,
    source: str | None,
    counts: tuple[int, ...] | None,
    rounds: int,
    neighbour: int | None,
    precision: str | None,
    defaults: bool,
    max_error: float | None,
    **extras: bool,
) -> int:
    """Measure latency: of a MODEL, compiled first, or of an OUT.so that neocpu compile wrote.

    Every engine runs in a process of its own, in float32 (but with --precision) and on the same
    number of threads (but with --default); their outputs are compared too.
    """
    from neocpu.bench.race.suite import Request

    check_source(asked, source)
    several = counts is not None and len(counts) > 1
    if precision and (several or extras["ablation"] or extras["untuned"]):
        raise UsageError("--precision is measured alone: drop --ablation, --untuned, --threads A,B")
    if defaults and (counts or precision or any(extras.values())):
        raise UsageError("--default is measured alone: drop --threads, --precision and the like")
    if max_error and (precision or several or extras["ablation"] or extras["untuned"]):
        raise UsageError("--max-error chooses precisions itself: drop --precision and the like")
    most = usable_threads(counts[-1] if counts else None)
    known = asked.known
    request = Request(
        peers or (),
        counts or (most,),
        rounds,
        known.databases,
        known.shapes,
        source,
        neighbour=neighbour or 0,
        precision=precision,
        defaults=defaults,
        max_error=max_error,
        **extras,
    )
    return _measure(terminal, asked.models, request, asked.page)


def _measure(terminal: Terminal, models: Sequence[str], request: Request, page: Page) -> int:
    """Measure, print and write; return the exit code."""
    from neocpu.bench.race.report import SuiteReport
    from neocpu.bench.race.suite import measure_models
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.machine import describe

    _check_page(terminal, page, request)
    asked = request.peers
    request = replace(request, peers=bench_page.available(terminal, asked))
    missing = tuple(peer for peer in asked if peer not in request.peers)
    _warn_of_few(terminal, request)
    run = Run(page.line, describe(), request.peers, request.threads, request.rounds, missing)
    found = bench_page.collect(
        terminal, models, lambda on_progress: measure_models(models, request, on_progress)
    )
    report = SuiteReport(found.reports, found.failures)
    document = {
        "command": run.command,
        "machine": run.machine.to_json(),
        "not_installed": run.missing,
        **report.to_json(),
    }
    bench_page.conclude(
        terminal,
        found,
        document,
        lambda: bench_page.show(_tables(report, run, page), markdown=page.markdown),
        lambda: _write(terminal, report, run, page),
        lambda: _write_page(terminal, report, run, page, interrupted=found.interrupted),
    )
    if found.failures:
        return bench_page.fail(terminal, found)
    wrong = [model.name for model in report.models if model.own and not model.own.agrees]
    if wrong:
        words = f"wrong outputs of neocpu: {', '.join(wrong)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0


def _warn_of_few(terminal: Terminal, request: Request) -> None:
    from neocpu.bench.results.sample_statistics import ENOUGH_ROUNDS

    several = request.peers or len(request.threads) > 1 or request.ablation or request.untuned
    if several and request.rounds < ENOUGH_ROUNDS:
        terminal.note(
            f"--rounds {request.rounds}: with fewer than {ENOUGH_ROUNDS} the 95 % intervals are "
            "too narrow"
        )


def _check_page(terminal: Terminal, page: Page, request: Request) -> None:
    """Find out what cannot be drawn before minutes are spent on measuring."""
    from neocpu.bench.results import chart

    if page.chart is not None:
        chart.check_suffix(page.chart)
        if not request.peers and len(request.threads) == 1:
            raise UsageError("--chart compares: name engines with --vs, or several --threads")
    bench_page.note_missing_charts(terminal, *_chart_paths(page))


def _chart_paths(page: Page) -> tuple[Path, ...]:
    """Return where charts go: beside the document too."""
    return tuple(path for path in (page.beside, page.chart) if path is not None)


def _write(terminal: Terminal, report: SuiteReport, run: Run, page: Page) -> None:
    """Write document and charts, as far as there is something to draw."""
    from neocpu.bench.race import charts, race_document
    from neocpu.bench.results import chart

    drawn: dict[Path | None, dict[str, Path]] = {}
    if chart.available():
        for path in _chart_paths(page):
            drawn[path] = charts.draw(path, report.models, run.machine, run.threads)
            for file in drawn[path].values():
                terminal.note(f"written: {file}")
            if not drawn[path]:
                terminal.note(f"not drawn, as no peer has a result: {path}")
    if page.output is not None:
        links = {words: path.name for words, path in drawn.get(page.beside, {}).items()}
        text = race_document.render(_title(page), report, run, links)
        bench_page.write(terminal, page.output, text)


def _write_page(
    terminal: Terminal, report: SuiteReport, run: Run, page: Page, *, interrupted: bool
) -> None:
    from neocpu.bench.race.race_document import method
    from neocpu.bench.race.race_pictures import pictures

    if page.html is not None:
        tables, shown = _tables(report, run, page), pictures(report.models)
        title, how = _title(page), method(run)
        bench_page.write_html(
            terminal, page, title, run, how, tables, shown, interrupted=interrupted
        )


def _title(page: Page) -> str:
    return f"Benchmark of {page.subject}"


def _tables(report: SuiteReport, run: Run, page: Page) -> list[Table]:
    from neocpu.bench.race import suite_tables

    names = {model.name for model in report.models} | {one.name for one in report.failures}
    if report.models and len(names) == 1:
        return suite_tables.model_tables(report.models[0])
    tables = suite_tables.tables(report, run.peers)
    return tables + suite_tables.details(report.models) if page.markdown else tables
