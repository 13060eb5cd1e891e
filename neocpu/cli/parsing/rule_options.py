"""The options about rules for graphs: to list them, and to leave some out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import print_table


def rules(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--disable-rule``, as ``disable_rules``, and ``--list-rules``."""
    disable = click.option(
        "--disable-rule",
        "disable_rules",
        type=options.Names(),
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
