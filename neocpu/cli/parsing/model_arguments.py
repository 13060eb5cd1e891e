"""Arguments about models: names and suites, with completion by the shell, and own operators.

They are not in `neocpu.cli.options`, because commands of neocpu-runtime import that too.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from neocpu.ir.custom_operators.registry import register_named


def complete_network(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
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


def with_suite(models: Sequence[str], suite: str | None) -> tuple[str, ...]:
    """Return the networks of ``suite`` and ``models``, each once, before any work is done.

    Raises UsageError, click.UsageError: a name is unknown, or none is given.
    """
    from neocpu.frontend import models as builtin

    named = (*(builtin.suite(suite) if suite is not None else ()), *models)
    if not named:
        context = click.get_current_context(silent=True)
        raise click.UsageError("missing argument: name a MODEL or a --suite", context)
    for model in models:
        if builtin.is_name(model):
            builtin.find(model)
    return tuple(dict.fromkeys(named))
