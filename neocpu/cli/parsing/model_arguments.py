"""Arguments about models: their names with completion by the shell, and operators of their own.

They are not in `neocpu.cli.options`, because commands of neocpu-runtime import that too.
"""

from __future__ import annotations

import glob

import click
from click.shell_completion import CompletionItem

from neocpu.ir.custom_operators.registry import register_named


def complete_network(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Return the built-in networks whose names have this beginning."""
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
        """Return the networks with this beginning; if a file has it too, let the shell complete."""
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
