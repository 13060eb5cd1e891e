"""Options of commands that compile or tune: accuracy, rules for graphs, sets of shapes, sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import click

from neocpu.cli import options
from neocpu.cli.options import OneOf, Parsed
from neocpu.foundation.console.terminal import print_table
from neocpu.frontend.shapes.input_shapes import Given, parse_given
from neocpu.frontend.shapes.requested_shapes import Shapes, has_form, parse_request
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


def _shape(text: str) -> str:
    """Check that a text is ``NAME:{1,4},3,224,224``, ``NAME=1..16``, or another ``--shape``."""
    if not has_form(text):
        shapes = "NAME:1,3,224,224, NAME:{1,4},3,224,224"
        values = "NAME=16000, NAME=480,640, NAME=1..16 or NAME=224..448/32"
        raise ValueError(f"'{text}' is not of the form {shapes}, {values}")
    return text


def _typical(text: str) -> tuple[str, Given]:
    """Read ``1,3,736,1280``, which has no name, ``NAME:1,3,736,1280`` or ``NAME=736``."""
    if re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        return "", tuple(map(int, text.split(",")))
    name, given = parse_given(text) or ("", ())
    numbers = given if isinstance(given, tuple) else (given,)
    if not name or not all(isinstance(each, int) for each in numbers):
        forms = "1,3,736,1280, NAME:1,3,736,1280 or NAME=736"
        raise ValueError(f"'{text}' is not of the form {forms}")
    return name, given


def requested(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> Shapes:
    """Join repeated ``--shape`` options, of one signature, of a set, or of ranges of sizes."""
    return parse_request(value, one_plan=ctx.params.get("typical") is not None)


def typical_sizes(
    ctx: click.Context, param: click.Parameter, value: Sequence[tuple[str, Given]]
) -> Mapping[str, Given] | Given | None:
    """Join repeated ``--typical`` options; the only one without a name is a shape."""
    if not value:
        return None
    sizes = options.shapes_by_name(ctx, param, value)
    if "" not in sizes:
        return sizes
    if len(sizes) > 1:
        raise click.BadParameter("give each its name, as in x:1,3,736,1280", ctx, param)
    return sizes[""]


shape_set = click.option(
    "--shape",
    "shapes",
    type=Parsed("shape", _shape),
    multiple=True,
    callback=requested,
    metavar="NAME:D0,D1,…",
    help="The whole shape of an input with dynamic dimensions. NAME=16000 sets a named dimension, "
    "or makes an input a constant (NAME=480,640 for several elements). Repeatable. A set of shapes "
    "puts a plan for each into the one file: 'x:{1,4,16},3,224,{224,320}' for all combinations "
    "(quoted, because the shell expands braces), one input repeated, batch=1..16 for both ends and "
    "the powers of two between them, or h=224..448/32 for all steps of 32. Sets of several "
    "dimensions give all combinations. If ranges stand for more than 64 shapes, as in "
    "x:1,3,32..2048/32,32..2048/32, or with --typical, the file has one plan, which takes all "
    "sizes.",
)
# Eager, because ranges of --shape are sizes if it is given.
typical = click.option(
    "--typical",
    type=Parsed("typical", _typical),
    multiple=True,
    is_eager=True,
    callback=typical_sizes,
    metavar="[NAME:]D0,D1,…",
    help="Compile one plan for all sizes of the ranges in --shape, made for these: the shape of "
    "the first input with ranges, or of another one (NAME:1,3,736,1280), or a named dimension "
    "(NAME=736). Repeatable. By default, each is the size nearest to the geometric middle of its "
    "range.",
)
