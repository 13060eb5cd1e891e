"""The commands, and a click group that imports each one's module only when it is called.

To add a command, write ``neocpu/cli/NAME.py`` with a click command named ``command`` in it, and add
its line to `COMMANDS`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Final

import click

from neocpu.foundation.errors import UsageError, did_you_mean

# The line each command has in `neocpu --help`, here so that printing it imports no command.
COMMANDS: Final[dict[str, str]] = {
    "compile": "Compile an ONNX model to a shared object.",
    "tune": "Measure convolution schemes and keep the results in the tuning database.",
    "run": "Run a compiled model.",
    "inspect": "Show what a compiled file is, and whether it runs here, without loading it.",
    "explain": "Show what was decided when a model was compiled, and why.",
    "serve": "Serve compiled models over HTTP: the Open Inference Protocol v2.",
    "bundle": "Write a folder that runs a compiled model from C and C++, without Python.",
    "bench": "Measure latency, beside other engines and the limits of the machine.",
    "db": "Show, check, merge, prune and export tuning databases.",
    "models": "List the built-in networks, or write one as an .onnx file.",
    "doctor": "Check that this machine can compile and run models.",
}


def installed(name: str) -> bool:
    """Return whether a command is there: ``neocpu-runtime`` has those that need no compiler."""
    return importlib.util.find_spec(f"neocpu.cli.{name}") is not None


class LazyGroup(click.Group):
    """A group of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names, in the order of the help."""
        return [name for name in COMMANDS if installed(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if there is none of that name.

        Raises
        ------
        UsageError
            If this installation does not have it.
        """
        if cmd_name not in COMMANDS:
            return None
        if not installed(cmd_name):
            raise UsageError(f"neocpu {cmd_name} needs the compiler: pip install neocpu")
        command = importlib.import_module(f"neocpu.cli.{cmd_name}").command
        assert isinstance(command, click.Command), cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run, or suggest the closest one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = did_you_mean(name, COMMANDS) or f"; known: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])
