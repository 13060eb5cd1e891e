"""A click group that imports each command's module only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import click

from neocpu.foundation.errors import UsageError, did_you_mean


def installed(package: str, name: str) -> bool:
    """Return whether a command is there: ``neocpu-runtime`` has those that need no compiler."""
    return importlib.util.find_spec(f"{package}.{name}") is not None


class LazyGroup(click.Group):
    """A group of the modules of a package that hold a click command named ``command``.

    Parameters
    ----------
    package : str
        Where the modules are, named as the commands are.
    lines : mapping of str to str
        The line each command has in the group's help: printing it imports none.
    """

    def __init__(self, *args: Any, package: str, lines: Mapping[str, str], **settings: Any) -> None:
        """Make a group of what ``package`` holds."""
        super().__init__(*args, **settings)
        self.package = package
        self.lines = lines

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names, in the order of the help."""
        return [name for name in self.lines if installed(self.package, name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if there is none of that name.

        Raises
        ------
        UsageError
            If this installation does not have it.
        """
        if cmd_name not in self.lines:
            return None
        if not installed(self.package, cmd_name):
            raise UsageError(
                f"{ctx.command_path} {cmd_name} needs the compiler: pip install neocpu"
            )
        command = importlib.import_module(f"{self.package}.{cmd_name}").command
        assert isinstance(command, click.Command), cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run, or suggest the closest one."""
        name = args[0]
        if name not in self.lines and not name.startswith("-"):
            hint = did_you_mean(name, self.lines) or f"; known: {', '.join(self.lines)}"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lines[name]) for name in self.list_commands(ctx)])
