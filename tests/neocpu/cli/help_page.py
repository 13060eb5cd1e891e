"""docs/cli.md: the --help of every command on one page, which ``make docs`` writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from neocpu.cli.main import PROGRAM, cli

PAGE: Final = Path(__file__).parents[3] / "docs" / "cli.md"

_HEAD: Final = """\
# The command line

What `neocpu COMMAND --help` prints, of all commands; `make docs` writes this page.

Targets may be spelt `--target llvm -mcpu=skylake-avx512 -mattr=+avx2` unquoted, quoted, as a JSON
object, by the name of a CPU or a board, or `host` (the default). Every command that does something
has `--debug` and, where it prints results, `--json`: errors are objects then.
"""
_WIDTH: Final = 100


def page() -> str:
    """Return the page."""
    parts = [f"## {path}\n\n```text\n{text}\n```\n" for path, (_, text) in sections()]
    return "\n".join((_HEAD, *parts))


def sections() -> Iterator[tuple[str, tuple[click.Command, str]]]:
    """Yield the command line of every command, and its help, in order."""
    return _under(cli, PROGRAM)


def _under(command: click.Command, path: str) -> Iterator[tuple[str, tuple[click.Command, str]]]:
    context = click.Context(
        command,
        info_name=path,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **cli.context_settings,
    )
    lines = command.get_help(context).splitlines()
    yield path, (command, "\n".join(line.rstrip() for line in lines))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            under = command.get_command(context, name)
            assert under is not None
            yield from _under(under, f"{path} {name}")


if __name__ == "__main__":
    PAGE.write_text(page())
