"""``neocpu bench``: how fast models are, beside other engines and beside the machine's limits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from neocpu.cli import (
    bench_accuracy,
    bench_callers,
    bench_instructions,
    bench_latency,
    bench_page,
    bench_served,
    bench_solvers,
    bench_startup,
    bench_strategies,
    options,
)
from neocpu.cli.bench_page import Known, Page
from neocpu.cli.networks import with_suite
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural
from neocpu.input_shapes import InputShapes

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
  neocpu bench resnet50 --strategies --db tuned.jsonl -o tuning.md
  neocpu bench resnet50.so --startup --model resnet50 --vs onnxruntime
  neocpu bench resnet50.so --callers 32 --duration 10m
  neocpu bench resnet18 mobilenet_v2 --instructions --vs ncnn -o arm.md"""

ARGUMENTS = "neocpu.bench.arguments"


@dataclass(frozen=True, slots=True)
class View:
    """Something to measure instead of latency.

    Attributes
    ----------
    compare : callable
        Take the terminal, the models' names, what is known, the page and the view's own options by
        name; measure, print, write, and return the exit code.
    own : tuple of str
        Options that go with this view, and perhaps with others, alone.
    of_artifacts : bool
        Whether it is for files that neocpu compile wrote, rather than for models.
    single_thread : bool
        Whether it heeds no ``--threads``.
    """

    compare: Callable[..., int]
    own: tuple[str, ...] = ()
    of_artifacts: bool = False
    single_thread: bool = False


VIEWS: Final[Mapping[str, View]] = {
    "accuracy": View(bench_accuracy.compare, ("scales",)),
    "callers": View(bench_callers.compare, ("callers", "duration"), of_artifacts=True),
    "instructions": View(bench_instructions.compare, ("peers", "sysroot"), single_thread=True),
    "served": View(bench_served.compare, ("clients", "duration"), of_artifacts=True),
    "solvers": View(bench_solvers.compare, ("milp_seconds",)),
    "startup": View(bench_startup.compare, ("peers", "source", "rounds"), of_artifacts=True),
    "strategies": View(bench_strategies.compare, ("seeds",)),
}
"""By the name of the option that asks for one."""

EXTRAS: Final = ("ablation", "untuned", "kernels", "cold_start", "roofline", "profile")
"""What can be measured besides latency."""

# What all views heed.
SHARED: Final = (
    *("models", "suite", "threads", "shapes", "batch", "databases", "markdown", "output"),
    *("json", "quiet", "verbose", "debug"),
)
# What the measurement of latency heeds too.
ALSO_LATENCY: Final = ("peers", "source", "rounds")


class Counts(click.ParamType[tuple[int, ...]]):
    """``4``, or a list such as ``1,2,4``; ascending and without repetitions."""

    def __init__(self, name: str) -> None:
        """Count what ``name`` says."""
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the counts."""
        words = str(value).split(",")
        if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
            message = f"'{value}' is not a number of {self.name}, or a list such as 1,2,4"
            self.fail(message, param, ctx)
        return tuple(sorted({int(word) for word in words}))


class Factors(click.ParamType[tuple[float, ...]]):
    """A list such as ``1e-4,1,1e4``."""

    name = "factors"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            factors = tuple(float(word) for word in str(value).split(","))
        except ValueError:
            factors = ()
        if not factors or not all(0 < factor < math.inf for factor in factors):
            self.fail(f"'{value}' is not a list of factors such as 1e-4,1,1e4", param, ctx)
        return factors


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
    type=Counts("threads"),
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
@options.batch
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
    "--scales",
    type=Factors(),
    metavar="F[,F…]",
    help="With --accuracy, multiply every MODEL's inputs and weights by each F instead, and plant "
    "wrong elements in its outputs: is each of these refused, and nothing else?",
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
@click.option(
    "--startup",
    is_flag=True,
    help="Measure what a process does until its first output instead, step by step, and how many "
    "of the weights' pages two processes share.",
)
@click.option(
    "--callers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Call one module from N threads instead, in turn with a single one: are outputs equal, "
    "memory and threads steady, and calls as fast?",
)
@click.option(
    "--duration",
    type=options.Duration(),
    default="60s",
    show_default=True,
    metavar="TIME",
    help="With --callers or --served, how long to measure each OUT.so.",
)
@click.option(
    "--served",
    is_flag=True,
    help="Put load on neocpu serve instead, in turn with direct calls: throughput, latency and "
    "what a request costs.",
)
@click.option(
    "--clients",
    type=Counts("clients"),
    default="1,8,32",
    show_default=True,
    metavar="N[,N…]",
    help="With --served, how many clients at once.",
)
@click.option(
    "--instructions",
    is_flag=True,
    help="Count what convolutions execute on a Cortex-A72 instead, emulated by QEMU, and model "
    "their inner loops. --vs names ncnn, onnxruntime or both.",
)
@click.option(
    "--sysroot",
    type=options.PATH,
    default=Path("build/arm/sysroot"),
    show_default=True,
    metavar="DIR",
    help="With --instructions, an AArch64 system with Python, as make build/arm/.ready makes one.",
)
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.md",
    help="Write all results as a document, with charts beside it.",
)
@click.option(
    "--chart",
    type=options.PATH,
    metavar="FILE.svg",
    help="Draw a chart: .svg, .png or .pdf.",
)
@options.common
def command(
    terminal: Terminal,
    models: tuple[str, ...],
    suite: str | None,
    source: str | None,
    threads: tuple[int, ...] | None,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
    databases: tuple[Path, ...],
    markdown: bool,
    output: Path | None,
    chart: Path | None,
    **values: Any,
) -> int:
    """Measure latency: of a MODEL, compiled first, or of an OUT.so that neocpu compile wrote.

    Every engine runs in a process of its own, in float32 and on the same number of threads; their
    outputs are compared too.
    """
    from neocpu.bench.suite import Request

    context = click.get_current_context()
    view = _checked_view(context)
    names = _models(models, suite, source)
    counts = _threads(threads)
    given = InputShapes(shapes, batch)
    subject = f"the {suite} suite" if suite else ", ".join(names)
    page = Page(subject, _command_line(), output, chart, markdown)
    if view is None:
        extras = {name: values[name] for name in EXTRAS}
        peers, rounds = values["peers"] or (), values["rounds"]
        request = Request(peers, counts, rounds, databases, given, source, **extras)
        return bench_latency.measure(terminal, names, request, page)
    chosen = VIEWS[view]
    bench_page.check(f"--{view}", names, counts, output, of_artifacts=chosen.of_artifacts)
    known = Known(counts[-1], databases, given)
    own = {name: context.params[name] for name in chosen.own}
    return chosen.compare(terminal, names, known, page, **own)


def _checked_view(context: click.Context) -> str | None:
    """Return the view that was asked for, unless an option was given that would be ignored."""
    given = {
        param.name: max(param.opts, key=len)
        for param in context.command.params
        if param.name and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
    view = next((name for name in VIEWS if name in given), None)
    if view is not None:
        heeded = {view, *VIEWS[view].own, *SHARED}
        if VIEWS[view].of_artifacts:
            heeded -= {"suite", "shapes", "batch", "databases"}
        if VIEWS[view].single_thread:
            heeded -= {"threads"}
        if others := [flag for name, flag in given.items() if name not in heeded]:
            raise UsageError(f"--{view} is a measurement of its own: leave out {', '.join(others)}")
        return view
    for name, flag in given.items():
        views = [f"--{view}" for view, chosen in VIEWS.items() if name in chosen.own]
        if views and name not in ALSO_LATENCY:
            raise UsageError(f"{flag} goes with {' or '.join(views)}")
    return None


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
    from neocpu.foundation.host import usable_cpus

    usable = usable_cpus()
    if counts is not None and counts[-1] > usable:
        raise UsageError(
            f"--threads {counts[-1]} is more than this process may use: {plural(usable, 'CPU')}"
        )
    return counts or (usable,)


def _command_line() -> str:
    arguments = click.get_current_context().meta[ARGUMENTS]
    return shlex.join(["neocpu", "bench", *arguments])
