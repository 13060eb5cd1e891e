"""The options that commands share, and the types of their values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import NeoCPUError, did_you_mean
from neocpu.foundation.units import parse_duration, parse_size
from neocpu.frontend.shapes.input_shapes import Given, parse_given

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")

PATH: Final = click.Path(path_type=Path, readable=False)  # the code that opens it reports errors
FILE_NAME: Final = click.Path(readable=False)  # as text


def count(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Return an option that takes an integer of at least 1."""
    return click.option(*names, type=click.IntRange(min=1), metavar="N", **settings)


def seed(text: str) -> Callable[[Command], Command]:
    """Return the option ``--seed``, whose help is ``text``."""
    number = click.IntRange(min=0)
    return click.option("--seed", type=number, default=0, metavar="N", help=text)


def all_of(options: Sequence[Callable[[Any], Any]], command: Command) -> Command:
    found: Command = functools.reduce(lambda made, option: option(made), reversed(options), command)
    return found


class Parsed(click.ParamType[Value]):
    """A value that a function reads from text; a plain `ValueError` of it is a mistake in use."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name = name
        self.parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        try:
            return self.parse(str(value))
        except NeoCPUError:
            raise
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _threads(text: str) -> int | str:
    """Read a positive number, or ``performance``."""
    if text != "performance" and (not text.isdecimal() or int(text) < 1):
        raise ValueError(f"'{text}' is neither a positive whole number nor 'performance'")
    return text if text == "performance" else int(text)


def _shape(text: str) -> tuple[str, Given]:
    """Read ``NAME:1,3,224,224``, ``NAME=16000`` or ``NAME=480,640``."""
    if (given := parse_given(text)) is None:
        forms = "NAME:1,3,224,224, NAME=16000 or NAME=480,640"
        raise ValueError(f"'{text}' is not of the form {forms}")
    return given


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError(f"'{text}' is not a list such as direct,depthwise")
    return names


THREADS: Final = Parsed("threads", _threads)
DURATION: Final = Parsed("time", parse_duration)
"""``90``, ``2ms``, ``60s``, ``10m`` or ``1h``, in seconds."""
SIZE: Final = Parsed("size", parse_size)  # ``120MB``, ``1.5GB``, ``64MiB`` or a number, in bytes
SHAPE: Final = Parsed("shape", _shape)
NAMES: Final = Parsed("names", _names)  # a list such as ``direct,depthwise``


class OneOf(click.Choice[str]):
    """A choice that suggests the closest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        known = ", ".join(self.choices)
        return f"'{value}' is not one of {known}{did_you_mean(str(value), self.choices)}"


def shapes_by_name(
    ctx: click.Context, param: click.Parameter, value: Sequence[tuple[str, Given]]
) -> Mapping[str, Given]:
    """Join repeated ``--shape`` options."""
    shapes = dict(value)
    if len(shapes) < len(value):
        raise click.BadParameter("the same input is named twice", ctx, param)
    return shapes


target = click.option(
    "--target",
    default="host",
    metavar="TARGET",
    help="The CPU to generate code for: host; the name of a CPU or a board, such as neoverse-n1, "
    "rpi4, rpi5, graviton3 or apple-m1; llvm -mcpu=NAME [-mattr=+x,-y] "
    "[-mtriple=aarch64-linux-gnu], quoted or not; or a JSON object. Code for another architecture "
    "needs a cross compiler, or neocpu[cross].",
)


def _shape_option(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--shape",
        "shapes",
        type=SHAPE,
        multiple=True,
        callback=shapes_by_name,
        metavar="NAME:D0,D1,…",
        help=text,
    )


shape = _shape_option(
    "The whole shape of an input with dynamic dimensions; or its value, as in NAME=16000, which "
    "makes the input a constant. Repeatable."
)
batch = count(
    "--batch",
    help="Images per call: the first dimension of every input that --shape does not name. A model "
    "of one image is changed to take N.",
)
threads = count("--threads", help="Number of threads; by default the CPUs this process may use.")
run_threads = click.option(
    "--threads",
    type=THREADS,
    metavar="N|performance",
    help="Number of threads; by default the CPUs this process may use. performance takes those on "
    "performance cores alone.",
)
inputs = click.option(
    "--inputs", type=PATH, metavar="FILE.npz", help="An archive of the inputs, by name or in order."
)
input_seed = seed("The seed of the random inputs used when none are given.")
databases = click.option(
    "--db",
    "databases",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="A tuning database to read in addition to the shipped one and your own. Repeatable; new "
    "measurements are written to the last one.",
)

only_db = click.option(
    "--only-db",
    is_flag=True,
    help="Read only the records of --db, neither the shipped ones nor your own. Without --db there "
    "are none.",
)
page = click.option(
    "--html",
    type=PATH,
    metavar="FILE",
    help="Also write a page for a browser: one file that loads nothing else.",
)


def one_shape(also: str = "") -> Callable[[Command], Command]:
    """Return the option that selects one of an artifact's shapes; ``also`` ends its help."""
    which = (
        "The shape of an input, which selects one of the shapes that the artifact is compiled for; "
        "by default the first, or the typical one where extents may vary."
    )
    return _shape_option(which + also)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    assert param.name is not None
    setattr(ctx.ensure_object(Terminal), param.name, value)


def _flag(*names: str, **settings: Any) -> Callable[[Command], Command]:
    # Eager, so that --debug takes effect when another option's value is wrong.
    return click.option(*names, expose_value=False, is_eager=True, callback=_remember, **settings)


_COMMON: Final = (
    _flag("--debug", is_flag=True, help="Show the traceback of an error."),
    _flag("--verbose", "-v", count=True, show_default=False, help="Show more; -vv shows all."),
    _flag(
        "--quiet",
        "-q",
        is_flag=True,
        help="Show no progress, notes or warnings, and one line for each file written.",
    ),
    _flag("--json", is_flag=True, help="Print one JSON document to standard output."),
)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command, and pass it a `Terminal` that knows them."""

    @functools.wraps(command)
    def with_terminal(*args: Any, **options: Any) -> Any:
        terminal = click.get_current_context().ensure_object(Terminal)
        terminal.start_logging()
        return command(terminal, *args, **options)

    wrapped: Callable[..., Any] = with_terminal
    for option in _COMMON:
        wrapped = option(wrapped)
    return wrapped
