"""``neocpu bench race``: latencies of models or artifacts, beside those of other engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import (
    RecordingCommand,
    check_source,
    compared,
    counts_of,
    of_models_or_artifacts,
    rounds,
    usable_threads,
)
from neocpu.cli.bench_views.view import (
    Asked,
    Collected,
    Page,
    available,
    note_missing_charts,
    report,
)
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError

if TYPE_CHECKING:
    from neocpu.bench.race.report import ModelReport, SuiteReport
    from neocpu.bench.race.suite import Request


EPILOG = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino,ncnn
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench net.onnx --kernels --markdown > results.md
  neocpu bench resnet50 --vs onnxruntime --threads 1,2,4 --chart scaling.svg
  neocpu bench resnet50 --vs onnxruntime --html race.html
  neocpu bench resnet50 --vs onnxruntime,openvino --precision auto
  neocpu bench resnet50 --vs onnxruntime,openvino --precision bf16
  neocpu bench resnet50 --vs onnxruntime,openvino --default
  neocpu bench resnet50 --vs onnxruntime,openvino --default --max-error 1e-2
  neocpu bench --suite paper --vs onnxruntime,openvino --roofline -o bench.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models_or_artifacts
@compared
@click.option(
    "--threads",
    "counts",
    type=counts_of("threads"),
    metavar="N[,N…]",
    help="Number of threads; by default the CPUs this process may use. A list also measures how "
    "the engines scale.",
)
@rounds
@click.option(
    "--precision",
    type=options.OneOf(("int8", "auto", "bf16")),
    help="int8: quantise each MODEL with random data; all engines run the quantised model. auto: "
    "the same, but neocpu runs the result of compile --precision auto --calibrate. ONNX Runtime is "
    "measured with feature maps of uint8 and of int8 (s8s8), OpenVINO also with NNCF's model if "
    "neocpu[nncf] is installed; the fastest counts. bf16: all engines compute in bfloat16 where "
    "they can. Errors are relative to float32.",
)
@click.option(
    "--default",
    "defaults",
    is_flag=True,
    help="Run every engine with its defaults: its own threads, element types and options.",
)
@click.option(
    "--max-error",
    type=click.FloatRange(min=0, min_open=True),
    metavar="E",
    help="Compile each MODEL with this --max-error, and exclude engines whose outputs differ more "
    "from float32, norm-wise. Every engine's error is shown beside its time.",
)
@click.option(
    "--kernels", is_flag=True, help="Also compare every convolution with the peak of FMA."
)
@click.option(
    "--cold-start",
    is_flag=True,
    help="Also measure the time from the start of a process to its first output.",
)
@click.option(
    "--roofline",
    is_flag=True,
    help="Also measure the machine's limits, and compare models with them.",
)
@click.option(
    "--chart",
    type=options.PATH,
    metavar="FILE.svg",
    help="Draw a chart: .svg, .png or .pdf. Needs matplotlib, from neocpu[bench].",
)
def command(
    terminal: Terminal,
    asked: Asked,
    peers: tuple[str, ...] | None,
    source: str | None,
    counts: tuple[int, ...] | None,
    rounds: int,
    precision: str | None,
    defaults: bool,
    max_error: float | None,
    **extras: bool,
) -> int:
    """Measure the latency of a MODEL, which is compiled first, or of an OUT.so.

    Every engine runs in a process of its own, in float32 (except with --precision) and on the same
    number of threads (except with --default). Outputs are compared too.
    """
    from neocpu.bench.race.presentation import present
    from neocpu.bench.race.suite import Request, measure_models

    check_source(asked, source)
    several = counts is not None and len(counts) > 1
    if precision and several:
        raise UsageError("--precision is measured alone: drop --threads A,B")
    if defaults and (counts or precision or any(extras.values())):
        raise UsageError("--default is measured alone: drop --threads, --precision and the like")
    if max_error and (precision or several):
        raise UsageError("--max-error chooses precisions itself: drop --precision and the like")
    most = usable_threads(counts[-1] if counts else None)
    _check_chart(asked.page, compares=bool(peers) or several)
    note_missing_charts(terminal, asked.page)
    there, missing = available(terminal, peers or ())
    request = Request(
        peers=there,
        threads=counts or (most,),
        rounds=rounds,
        databases=asked.databases,
        shapes=asked.shapes,
        source=source,
        precision=precision,
        defaults=defaults,
        max_error=max_error,
        **extras,
    )
    _warn_of_few(terminal, request)
    return report(
        terminal,
        asked,
        f"Benchmark of {asked.page.models}",
        measure_models,
        request,
        lambda found, run: present(_suite(found), run, detailed=asked.page.markdown),
        peers=request.peers,
        missing=missing,
        threads=request.threads,
        rounds=request.rounds,
        summary=lambda found: {"not_installed": missing, "summary": _suite(found).summary()},
        wrong=_wrong,
    )


def _suite(found: Collected[ModelReport]) -> SuiteReport:
    from neocpu.bench.race.report import SuiteReport

    return SuiteReport(found.reports, found.failures)


def _wrong(found: Collected[ModelReport]) -> str:
    names = [model.name for model in found.reports if model.own and not model.own.agrees]
    # If a model failed, that failure decides the exit code.
    return f"wrong outputs of neocpu: {', '.join(names)}" if names and not found.failures else ""


def _warn_of_few(terminal: Terminal, request: Request) -> None:
    from neocpu.bench.results.sample_statistics import ENOUGH_ROUNDS

    several = request.peers or len(request.threads) > 1
    if several and request.rounds < ENOUGH_ROUNDS:
        terminal.note(
            f"--rounds {request.rounds}: with fewer than {ENOUGH_ROUNDS} the 95 % intervals are "
            "too narrow"
        )


def _check_chart(page: Page, *, compares: bool) -> None:
    from neocpu.bench.results import chart

    if page.chart is not None:
        chart.check_suffix(page.chart)
        if not compares:
            raise UsageError("--chart compares: name engines with --vs, or several --threads")
