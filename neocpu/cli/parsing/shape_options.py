"""The option for the shapes to compile for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from neocpu.frontend.shapes.input_shapes import Given
from neocpu.frontend.shapes.requested_shapes import Shapes, join_sets, parse_set


class ShapeSet(click.ParamType[tuple[str, tuple[Given, ...]]]):
    """``NAME:{1,4},3,224,224``, ``NAME=1..16``, or a form of `Shape`."""

    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[Given, ...]]:
        """Return the name, and all shapes or values."""
        if (given := parse_set(str(value))) is None:
            form = "NAME:1,3,224,224, NAME:{1,4},3,224,224, NAME=16000, NAME=480,640 or NAME=1..16"
            self.fail(f"'{value}' is not of the form {form}", param, ctx)
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
    type=ShapeSet(),
    multiple=True,
    callback=signatures_of,
    metavar="NAME:D0,D1,…",
    help="The whole shape of an input with dynamic dimensions. NAME=16000 sets a named dimension, "
    "or makes an input a constant (NAME=480,640 for several elements). Repeatable. A set of shapes "
    "puts a plan for each into the one file: 'x:{1,4,16},3,224,{224,320}' for all combinations "
    "(quoted, because the shell expands braces), one input repeated, or batch=1..16 for both ends "
    "and the powers of two between them. Sets of several dimensions give all combinations.",
)
