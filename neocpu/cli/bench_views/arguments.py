"""Arguments that views of ``neocpu bench`` share, and the `Asked` that replaces them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from neocpu.cli import options
from neocpu.cli.bench_views.view import Asked, Page
from neocpu.cli.databases import own_and_named
from neocpu.cli.parsing.model_arguments import ModelName, with_suite
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes

ARGUMENTS: Final = "neocpu.bench.arguments"  # key of the command line's arguments
View: TypeAlias = Callable[..., int]


def counts_of(noun: str) -> options.Parsed[tuple[int, ...]]:
    """Return the type of ``4``, or of a list such as ``1,2,4``; ascending, without repetitions."""

    def parse(text: str) -> tuple[int, ...]:
        words = text.split(",")
        if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
            raise ValueError(f"'{text}' is not a number of {noun}, or a list such as 1,2,4")
        return tuple(sorted({int(word) for word in words}))

    return options.Parsed(noun, parse)


class RecordingCommand(click.Command):
    """A command that keeps its arguments as given, so that documents can print them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


suite = click.option(
    "--suite", metavar="NAME", help="Measure all networks of a suite: paper, deployed or all."
)
rounds = click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=12,
    metavar="N",
    help="Number of rounds; in each round all engines run in turn.",
)
markdown = click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
output = click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.md",
    help="Write all results as a document, with charts beside it.",
)


_FILES: Final = (markdown, output, options.page, options.common)


def compared(view: View) -> View:
    """Add the options that name other engines, and the model that they run."""
    return _with(
        view,
        click.option(
            "--vs",
            "peers",
            type=options.NAMES,
            default=None,
            metavar="A,B,…",
            help="Engines to compare with: onnxruntime, openvino, ncnn (needs neocpu[bench]).",
        ),
        click.option(
            "--model",
            "source",
            type=ModelName(),
            metavar="FILE.onnx",
            help="The model that OUT.so was compiled from; the other engines run it.",
        ),
    )


def of_models(view: View) -> View:
    """Add the arguments of a view of models; the view gets an `Asked` in their place."""
    return _of(view, "[MODEL]…", artifacts=False)


def of_models_or_artifacts(view: View) -> View:
    """Add the arguments of a view of models or artifacts; it gets an `Asked` in their place."""
    return _of(view, "[MODEL|OUT.so]…", artifacts=True)


def _of(view: View, metavar: str, *, artifacts: bool) -> View:
    @functools.wraps(view)
    def asked(
        terminal: Terminal,
        models: tuple[str, ...],
        suite: str | None,
        shapes: Mapping[str, tuple[int, ...]],
        batch: int | None,
        databases: tuple[Path, ...],
        **own: Any,
    ) -> int:
        names = with_suite(models, suite)
        compiled = next(filter(_names_artifact, names), None)
        if compiled is not None and not artifacts:
            raise UsageError(f"{_view()} needs a MODEL: {compiled} is compiled already")
        if compiled is not None and suite is not None:
            raise UsageError(
                f"--suite compiles its networks itself: measure {compiled} with a separate command"
            )
        given = InputShapes.parse(shapes, batch)
        words = f"the {suite} suite" if suite else ", ".join(names)
        return _run(view, terminal, names, words, databases, given, **own)

    argument = click.argument("models", type=ModelName(), metavar=metavar, nargs=-1)
    return _with(asked, argument, suite, options.shape, options.batch, options.databases, *_FILES)


def of_artifacts(view: View) -> View:
    """Add the arguments of a view of artifacts; the view gets an `Asked` in their place."""

    @functools.wraps(view)
    def asked(terminal: Terminal, models: tuple[str, ...], **own: Any) -> int:
        for model in models:
            if not _names_artifact(model):
                raise UsageError(f"{_view()} needs an OUT.so: compile {model} first")
        names = tuple(dict.fromkeys(models))
        return _run(view, terminal, names, ", ".join(names), (), NO_SHAPES, **own)

    argument = click.argument(
        "models", type=options.FILE_NAME, metavar="OUT.so…", nargs=-1, required=True
    )
    return _with(asked, argument, options.threads, *_FILES)


def _run(
    view: View,
    terminal: Terminal,
    names: tuple[str, ...],
    words: str,
    databases: tuple[Path, ...],
    shapes: InputShapes,
    *,
    markdown: bool,
    output: Path | None,
    html: Path | None,
    chart: Path | None = None,
    threads: int | None = None,
    **own: Any,
) -> int:
    context = click.get_current_context()
    line = shlex.join([*context.command_path.split(), *context.meta[ARGUMENTS]])
    page = Page(models=words, line=line, output=output, chart=chart, html=html, markdown=markdown)
    # Its own options that are text may name a file to read.
    read = (each for each in own.values() if isinstance(each, str))
    page.check((*names, *own_and_named(databases), *read))
    asked = Asked(
        models=names, threads=usable_threads(threads), databases=databases, shapes=shapes, page=page
    )
    return view(terminal, asked, **own)


def _names_artifact(model: str) -> bool:
    from neocpu.bench.engines.measured_model import names_artifact

    return names_artifact(model)


def check_source(asked: Asked, source: str | None) -> None:
    """Check that ``--model`` comes with a single artifact. Raises UsageError."""
    if source is not None and (len(asked.models) != 1 or not _names_artifact(asked.models[0])):
        raise UsageError("--model goes with one OUT.so: it names the model that was compiled")


def usable_threads(count: int | None) -> int:
    """Return the threads to use: by default all CPUs. Raises UsageError: there are fewer CPUs."""
    from neocpu.foundation.host import usable_cpus

    usable = usable_cpus()
    if count is not None and count > usable:
        raise UsageError(
            f"--threads {count} is more than this process may use: {plural(usable, 'CPU')}"
        )
    return count or usable


def _with(command: View, *decorators: Callable[..., Any]) -> View:
    # The first decorator is the uppermost: options are listed in this order.
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _view() -> str:
    return click.get_current_context().command_path
