"""``neocpu bench``: how fast models are, beside other engines and beside the machine's limits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from neocpu.cli import (
    bench_accuracy,
    bench_latency,
    bench_page,
    bench_solvers,
    bench_strategies,
    options,
)
from neocpu.cli.bench_page import Known, Page
from neocpu.cli.networks import with_suite
from neocpu.cli.terminal import Terminal
from neocpu.schedules.errors import UsageError
from neocpu.units import plural

EPILOG = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino,ncnn
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench net.onnx --ablation --kernels --markdown > results.md
  neocpu bench resnet50 --vs onnxruntime --threads 1,2,4 --chart scaling.svg
  neocpu bench --suite paper --vs onnxruntime,openvino --roofline -o bench.md
  neocpu bench resnet50 --profile
  neocpu bench --suite all --accuracy -o accuracy.md
  neocpu bench --suite all --solvers -o search.md
  neocpu bench resnet50 --strategies --db tuned.jsonl -o tuning.md"""

ARGUMENTS = "neocpu.bench.arguments"

# The views that measure no latency, each with the options that are its own; what all views heed.
VIEWS: Final = {"accuracy": (), "solvers": ("milp_seconds",), "strategies": ("seeds",)}
SHARED: Final = (
    *("models", "suite", "threads", "shapes", "databases", "markdown", "output"),
    *("json", "quiet", "verbose", "debug"),
)


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
    "--profile",
    is_flag=True,
    help="Also measure every operator inside the running network, and how near its limit it comes.",
)
@click.option(
    "--accuracy",
    is_flag=True,
    help="Measure norm-wise errors against float64 instead, of every level of compile --accuracy "
    "and of ONNX Runtime.",
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
    accuracy: bool,
    solvers: bool,
    milp_seconds: float,
    strategies: bool,
    seeds: int,
    markdown: bool,
    output: Path | None,
    chart: Path | None,
    **extras: bool,
) -> int:
    """Measure latency: of a MODEL, compiled first, or of an OUT.so that neocpu compile wrote.

    Every engine runs in a process of its own, in float32 and on the same number of threads; their
    outputs are compared too.
    """
    from neocpu.bench.suite import Request

    _check_options(click.get_current_context())
    names = _models(models, suite, source)
    counts = _threads(threads)
    subject = f"the {suite} suite" if suite else ", ".join(names)
    page = Page(subject, _command_line(), output, chart, markdown)
    if not (accuracy or solvers or strategies):
        request = Request(peers or (), counts, rounds, databases, shapes, source, **extras)
        return bench_latency.measure(terminal, names, request, page)
    view = "accuracy" if accuracy else "solvers" if solvers else "strategies"
    bench_page.check(f"--{view}", names, counts, output)
    known = Known(counts[-1], databases, shapes)
    if accuracy:
        return bench_accuracy.compare(terminal, names, known, page)
    if solvers:
        return bench_solvers.compare(terminal, names, known, milp_seconds, page)
    return bench_strategies.compare(terminal, names, known, seeds, page)


def _check_options(context: click.Context) -> None:
    """Find out that an option was given which would be ignored."""
    given = {
        param.name: max(param.opts, key=len)
        for param in context.command.params
        if param.name and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
    for view, own in VIEWS.items():
        if view in given:
            others = [flag for name, flag in given.items() if name not in {view, *own, *SHARED}]
            if others:
                raise UsageError(f"--{view} measures no latency: leave out {', '.join(others)}")
            return
    for view, own in VIEWS.items():
        for name in own:
            if name in given:
                raise UsageError(f"{given[name]} goes with --{view}")


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


def _command_line() -> str:
    arguments = click.get_current_context().meta[ARGUMENTS]
    return shlex.join(["neocpu", "bench", *arguments])
