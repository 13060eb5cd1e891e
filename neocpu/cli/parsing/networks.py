"""The networks that a command works on, named one by one or by a suite."""

from __future__ import annotations

from collections.abc import Sequence

import click


def with_suite(models: Sequence[str], suite: str | None) -> tuple[str, ...]:
    """Return the networks of ``suite`` and ``models``, each once.

    Wrong names are reported here, before any work is done.

    Raises UsageError: there is no network or suite of a name.
    Raises click.UsageError: None is named.
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
