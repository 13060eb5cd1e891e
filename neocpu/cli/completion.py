"""``neocpu completion``: a script that lets a shell complete command lines."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from neocpu.cli import options
from neocpu.cli.main import COMPLETION, PROGRAM, cli
from neocpu.foundation.console.terminal import Terminal, echo

SHELLS: Final = ("bash", "zsh", "fish")

EPILOG = """\b
Examples:
  eval "$(neocpu completion bash)"        # in ~/.bashrc, for every new shell
  eval "$(neocpu completion zsh)"         # in ~/.zshrc, after compinit
  neocpu completion fish > ~/.config/fish/completions/neocpu.fish"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=options.OneOf(SHELLS), metavar=f"[{'|'.join(SHELLS)}]")
@options.common
def command(terminal: Terminal, shell: str) -> None:
    """Print the function that makes a shell complete commands, options and files on Tab."""
    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(cli, {}, PROGRAM, COMPLETION).source()
    terminal.result({"shell": shell, "script": script}, lambda: echo(*script.splitlines()))
