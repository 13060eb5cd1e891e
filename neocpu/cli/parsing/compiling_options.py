"""Options of commands that compile or tune: accuracy, rules for graphs, and sets of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import click

from neocpu.cli import options
from neocpu.cli.options import OneOf, Parsed
from neocpu.foundation.console.terminal import print_table
from neocpu.frontend.shapes.input_shapes import Given
from neocpu.frontend.shapes.requested_shapes import Shapes, join_sets, parse_set
from neocpu.schedules.vocabulary.accuracy import DEFAULT, LEVELS

accuracy: Final = click.option(
    "--accuracy",
    type=OneOf(tuple(LEVELS)),
    default=DEFAULT.name,
    help="How exact outputs are: their norm-wise error is at most 1e-4, or 5e-6 (strict), which "
    "leaves out algorithms that round more than direct convolution.",
)


def rules(command: Callable[..., Any]) -> Callable[..., Any]:
    disable = click.option(
        "--disable-rule",
        "disable_rules",
        type=options.NAMES,
        multiple=True,
        callback=lambda context, option, given: tuple(chain.from_iterable(given)),
        metavar="NAME,…",
        help="Leave out these graph rules, to see what they gain. Repeatable.",
    )
    show = click.option(
        "--list-rules",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_list,
        help="Print the graph rules, and exit.",
    )
    return disable(show(command))


def _list(context: click.Context, option: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from neocpu.graph.table import RULES

    rows = [(rule.name, str(rule.kind), rule.summary) for rule in RULES]
    print_table(("rule", "kind", "what it does"), rows)
    context.exit()


def _shapes(text: str) -> tuple[str, tuple[Given, ...]]:
    """Read ``NAME:{1,4},3,224,224``, ``NAME=1..16``, or a form of ``--shape`` elsewhere."""
    if (given := parse_set(text)) is None:
        shapes = "NAME:1,3,224,224, NAME:{1,4},3,224,224"
        values = "NAME=16000, NAME=480,640, NAME=1..16 or NAME=224..448/32"
        raise ValueError(f"'{text}' is not of the form {shapes}, {values}")
    return given


def signatures_of(
    ctx: click.Context, param: click.Parameter, value: Sequence[tuple[str, tuple[Given, ...]]]
) -> Shapes:
    """Join repeated ``--shape`` options, of one signature or of a set."""
    signatures = join_sets(value)
    return signatures[0] if len(signatures) == 1 else signatures


shape_set = click.option(
    "--shape",
    "shapes",
    type=Parsed("shape", _shapes),
    multiple=True,
    callback=signatures_of,
    metavar="NAME:D0,D1,…",
    help="The whole shape of an input with dynamic dimensions. NAME=16000 sets a named dimension, "
    "or makes an input a constant (NAME=480,640 for several elements). Repeatable. A set of shapes "
    "puts a plan for each into the one file: 'x:{1,4,16},3,224,{224,320}' for all combinations "
    "(quoted, because the shell expands braces), one input repeated, batch=1..16 for both ends and "
    "the powers of two between them, or h=224..448/32 for all steps of 32. Sets of several "
    "dimensions give all combinations.",
)
