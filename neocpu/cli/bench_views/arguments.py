"""Arguments that views of ``neocpu bench`` share, and the `Asked` that replaces them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from neocpu.cli import options
from neocpu.cli.bench_views.page import Known, Page, check_files
from neocpu.cli.databases import own_and_named
from neocpu.cli.parsing.model_arguments import ModelName
from neocpu.cli.parsing.networks import with_suite
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural
from neocpu.frontend.shapes.input_shapes import InputShapes

ARGUMENTS: Final = "neocpu.bench.arguments"
"""Key under which a context keeps the arguments of the command line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The models that a view measures, and the files of its results."""

    # ``.onnx`` files and built-in names, or artifacts, as the view takes them.
    models: tuple[str, ...]
    known: Known
    page: Page


class Counts(click.ParamType[tuple[int, ...]]):
    """``4``, or a list such as ``1,2,4``; ascending and without repetitions."""

    def __init__(self, name: str) -> None:
        """Take counts of the things that ``name`` names."""
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


class RecordingCommand(click.Command):
    """A command that keeps its arguments as given, so that documents can print them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep and parse the arguments."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


suite = click.option(
    "--suite",
    metavar="NAME",
    help="Measure all networks of a suite: paper, deployed or all.",
)
peers = click.option(
    "--vs",
    "peers",
    type=options.Names(),
    default=None,
    metavar="A,B,…",
    help="Engines to compare with: onnxruntime, openvino, ncnn (needs neocpu[bench]).",
)
source = click.option(
    "--model",
    "source",
    type=ModelName(),
    metavar="FILE.onnx",
    help="The model that OUT.so was compiled from; the other engines run it.",
)
rounds = click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=12,
    metavar="N",
    help="Number of rounds; in each round all engines run in turn.",
)
duration = click.option(
    "--duration",
    type=options.Duration(),
    default="60s",
    help="How long to measure each OUT.so.",
)
markdown = click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
output = click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.md",
    help="Write all results as a document, with charts beside it.",
)


def of_models(view: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments of a view of models; the view gets an `Asked` in their place."""
    return _of(view, "[MODEL]…", artifacts=False)


def of_models_or_artifacts(view: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments of a view of models or artifacts; it gets an `Asked` in their place."""
    return _of(view, "[MODEL|OUT.so]…", artifacts=True)


def _of(view: Callable[..., int], metavar: str, *, artifacts: bool) -> Callable[..., int]:
    @functools.wraps(view)
    def asked(
        terminal: Terminal,
        models: tuple[str, ...],
        suite: str | None,
        shapes: Mapping[str, tuple[int, ...]],
        batch: int | None,
        databases: tuple[Path, ...],
        markdown: bool,
        output: Path | None,
        html: Path | None,
        threads: int | None = None,
        **own: Any,
    ) -> int:
        names = with_suite(models, suite)
        _check_kinds(names, suite, artifacts=artifacts)
        chart = own.pop("chart", None)
        page = Page(
            models=_models_text(suite, names),
            line=_command_line(),
            output=output,
            chart=chart,
            html=html,
            markdown=markdown,
        )
        check_files(page, (*names, *own_and_named(databases), *_texts(own)))
        known = Known(usable_threads(threads), databases, InputShapes.parse(shapes, batch))
        return view(terminal, Asked(names, known, page), **own)

    argument = click.argument("models", type=ModelName(), metavar=metavar, nargs=-1)
    return _with(
        asked,
        argument,
        suite,
        options.shape,
        options.batch,
        options.databases,
        markdown,
        output,
        options.page,
        options.common,
    )


def _check_kinds(names: Sequence[str], suite: str | None, *, artifacts: bool) -> None:
    from neocpu.bench.engines.measured_model import names_artifact

    found = next(filter(names_artifact, names), None)
    if found is not None and not artifacts:
        raise UsageError(f"{_view()} needs a MODEL: {found} is compiled already")
    if found is not None and suite is not None:
        raise UsageError(
            f"--suite compiles its networks itself: measure {found} with a separate command"
        )


def check_source(asked: Asked, source: str | None) -> None:
    """Check that ``--model`` is given with a single artifact.

    Raises UsageError: it is given with models, or with several artifacts.
    """
    from neocpu.bench.engines.measured_model import names_artifact

    if source is not None and (len(asked.models) != 1 or not names_artifact(asked.models[0])):
        raise UsageError("--model goes with one OUT.so: it names the model that was compiled")


def of_artifacts(view: Callable[..., int]) -> Callable[..., int]:
    """Add the arguments of a view of artifacts; the view gets an `Asked` in their place."""

    @functools.wraps(view)
    def asked(
        terminal: Terminal,
        models: tuple[str, ...],
        markdown: bool,
        output: Path | None,
        html: Path | None,
        threads: int | None,
        **own: Any,
    ) -> int:
        from neocpu.bench.engines.measured_model import names_artifact

        for model in models:
            if not names_artifact(model):
                raise UsageError(f"{_view()} needs an OUT.so: compile {model} first")
        names = tuple(dict.fromkeys(models))
        page = Page(
            models=_models_text(None, names),
            line=_command_line(),
            output=output,
            chart=None,
            html=html,
            markdown=markdown,
        )
        check_files(page, (*names, *_texts(own)))
        known = Known(usable_threads(threads), (), InputShapes({}))
        return view(terminal, Asked(names, known, page), **own)

    argument = click.argument(
        "models", type=options.FILE_NAME, metavar="OUT.so…", nargs=-1, required=True
    )
    return _with(asked, argument, options.threads, markdown, output, options.page, options.common)


def _texts(own: Mapping[str, Any]) -> list[str]:
    """Return the values of a view's own options that may name a file to read."""
    return [each for each in own.values() if isinstance(each, str)]


def _models_text(suite: str | None, names: Sequence[str]) -> str:
    return f"the {suite} suite" if suite else ", ".join(names)


def _command_line() -> str:
    context = click.get_current_context()
    return shlex.join([*context.command_path.split(), *context.meta[ARGUMENTS]])


def usable_threads(count: int | None) -> int:
    """Return the number of threads to use: by default all CPUs of this process.

    Raises UsageError: the process may use fewer CPUs.
    """
    from neocpu.foundation.host import usable_cpus

    usable = usable_cpus()
    if count is not None and count > usable:
        raise UsageError(
            f"--threads {count} is more than this process may use: {plural(usable, 'CPU')}"
        )
    return count or usable


def _with(command: Callable[..., int], *decorators: Callable[..., Any]) -> Callable[..., int]:
    # The first decorator is the uppermost: options are listed in this order.
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _view() -> str:
    return click.get_current_context().command_path
