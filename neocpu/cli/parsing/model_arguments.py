"""Models on command lines: their names, what a shell completes in their places, operators.

They are no part of `neocpu.cli.options`, which commands of neocpu-runtime import too.
"""

from __future__ import annotations

import glob

import click
from click.shell_completion import CompletionItem

from neocpu.ir.custom_operators.registry import register_named


def complete_network(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Return the built-in networks whose names begin so."""
    from neocpu.frontend.models import MODELS

    return [
        CompletionItem(name, help=info.title)
        for name, info in MODELS.items()
        if name.startswith(incomplete)
    ]


class ModelName(click.ParamType[str]):
    """A model's file, or the name of a built-in network."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the networks that begin so, where no file does; else have the shell name files."""
        names = complete_network(ctx, param, incomplete)
        if not incomplete or not names or glob.glob(f"{glob.escape(incomplete)}*"):
            return [CompletionItem(incomplete, type="file")]
        return names


operators = click.option(
    "--operators",
    multiple=True,
    expose_value=False,
    callback=lambda context, option, names: register_named(names),
    metavar="MODULE:NAME",
    help="Operators of your own (docs/models.md) that are not installed. Repeatable.",
)
