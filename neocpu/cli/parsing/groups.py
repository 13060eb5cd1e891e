"""Groups of commands, which print their help, suggest names, and import commands when called."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from neocpu.foundation.console.terminal import echo
from neocpu.foundation.errors import UsageError, did_you_mean


def installed(package: str, name: str) -> bool:
    """Return whether a command is installed: ``neocpu-runtime`` has those without a compiler."""
    return importlib.util.find_spec(f"{package}.{name}") is not None


class Group(click.Group):
    """A group that prints its help if there are no arguments, and suggests close names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help and exit if there are no arguments; else parse them."""
        # With click's ``no_args_is_help`` this would be an error.
        if not args and not ctx.resilient_parsing:
            echo(*self.get_help(ctx).splitlines())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run, or suggest the closest one."""
        name = args[0]
        # A shell that completes a line needs no error message.
        if not name.startswith("-") and not ctx.resilient_parsing:
            if self.get_command(ctx, name) is None:
                known = self.list_commands(ctx)
                options = [option for param in self.get_params(ctx) for option in param.opts]
                hint = did_you_mean(name, [*known, *options]) or f"; known: {', '.join(known)}"
                raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """Commands that are imported when needed; `lines` has the line of help of each, by name.

    Each is a click command named ``command`` in a module of ``package``.
    """

    def __init__(self, *args: Any, package: str, lines: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.package = package
        self.lines = lines

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self.lines if installed(self.package, name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None. Raises UsageError: this installation does not have it."""
        if cmd_name not in self.lines:
            return None
        if not installed(self.package, cmd_name):
            if ctx.resilient_parsing:
                return None
            raise UsageError(
                f"{ctx.command_path} {cmd_name} needs the compiler: pip install neocpu"
            )
        command = importlib.import_module(f"{self.package}.{cmd_name}").command
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lines[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the commands or options with this beginning, without importing any command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.lines[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]
