"""The entry point: parse, run one command, and turn every outcome into an exit code."""

from __future__ import annotations

import io
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click
from click.shell_completion import shell_complete

from neocpu.cli.commands import COMMANDS
from neocpu.cli.parsing.groups import LazyGroup
from neocpu.cli.parsing.target_tokens import fold_target
from neocpu.cli.signals import INTERRUPTED, OrderlyEnd, forget_interruption
from neocpu.foundation.console.terminal import Terminal, echo, log_warnings
from neocpu.foundation.errors import NeoCPUError, dependency_error, did_you_mean, for_command_line
from neocpu.foundation.foreign_code import one_line
from neocpu.foundation.own_process import end_quickly

PROGRAM: Final = "neocpu"
COMPLETION: Final = "_NEOCPU_COMPLETE"  # by which a shell asks: see click
BROKEN_PIPE: Final = 141  # exit code of a program whose reader went away: 128 + SIGPIPE
EPILOG: Final = """\b
Exit codes: 0 success, 1 a bug in neocpu, 2 usage, 3 bad model,
4 unsupported operator or shape, 5 target or instruction set, 6 accuracy
check, 7 tuning database, 8 bad artifact, 129 hangup, 130 interrupt,
141 closed pipe, 143 termination.

\b
  neocpu compile model.onnx -o model.so --tune-budget 60s
  neocpu run model.so --repeat 50

\b
Tab completes commands, options and files after
  eval "$(neocpu completion bash)"  # or zsh; neocpu completion fish | source"""


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import neocpu

        echo(f"neocpu {neocpu.__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    package="neocpu.cli",
    lines=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Compile convolutional networks to fast CPU code."""


def main(arguments: Sequence[str], end: OrderlyEnd | None = None) -> int:
    """Run one command line and return its exit code."""
    # Found before the options are parsed, because that may fail.
    terminal = Terminal(json="--json" in itertools.takewhile("--".__ne__, arguments))
    try:
        with for_command_line():
            code = _run(arguments, terminal, end or OrderlyEnd())
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    return code


def _run(arguments: Sequence[str], terminal: Terminal, end: OrderlyEnd) -> int:
    """Run one command line, and print its error, even if that or its printing is interrupted."""
    try:
        return _run_to_its_end(arguments, terminal)
    except KeyboardInterrupt:
        return terminal.fail(f"interrupted; {terminal.kept()}", end.exit_code(INTERRUPTED))


def _run_to_its_end(arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        return _invoke(arguments, terminal)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except NeoCPUError as error:
        return terminal.fail(str(error), error.exit_code)
    except click.ClickException as error:
        return terminal.fail(_usage_message(error), error.exit_code)
    except SystemExit as end:  # raised by code that is not ours: we do not call sys.exit
        return terminal.fail(f"nothing was finished: {one_line(end)}", 1)
    except BaseException as error:  # libraries raise things that are no Exception
        if (found := dependency_error(error)) is not None:
            return terminal.fail(str(found), found.exit_code)
        return terminal.fail(_bug_message(error, terminal), 1)


def run() -> NoReturn:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Like standard error: a character that the terminal's encoding lacks is no failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    log_warnings()
    end = OrderlyEnd()
    end.install()
    code = end.exit_code(main(sys.argv[1:], end))
    end_quickly()
    forget_interruption()
    sys.exit(code)


def _invoke(arguments: Sequence[str], terminal: Terminal) -> int:
    # Click's own main would exit with 1, like a bug, if the reader of a pipe is gone.
    if instruction := os.environ.get(COMPLETION):
        return shell_complete(cli, {}, PROGRAM, COMPLETION, instruction)
    try:
        with cli.make_context(PROGRAM, fold_target(arguments), obj=terminal) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    # The interpreter flushes standard output when it exits, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_message(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        known = (
            [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
        )
        hint = did_you_mean(error.option_name, known)
        if not hint and error.ctx and isinstance(error.ctx.command, click.Group):
            hint = " here: options follow the command"
        message = f"no option {error.option_name}{hint}"
    else:
        message = error.format_message().removesuffix(".")
        message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    return f"{message} (see '{context.command_path} --help')" if context else message


def _bug_message(error: BaseException, terminal: Terminal) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return what if terminal.debug else f"{what}; run again with --debug for the traceback"
