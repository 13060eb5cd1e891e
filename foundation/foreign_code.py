"""Code of users and of other packages, whatever it does: its failure is theirs, and an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neocpu.foundation.errors import NeoCPUError, UsageError


@contextmanager
def foreign_code(failure: Callable[[BaseException], NeoCPUError]) -> Iterator[None]:
    """Run code that is not ours.

    ``sys.exit(0)`` in it would end a command with success and without its result, so it counts as a
    failure, too. Ctrl-C stays what it is.

    Parameters
    ----------
    failure : callable
        Makes an error of what the code raised.

    Raises
    ------
    NeoCPUError
        What ``failure`` makes; or a `UsageError` that the code itself raises.
    """
    try:
        yield
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:
        raise failure(error) from error


def told(error: BaseException) -> str:
    """Return on one line what code raised."""
    if isinstance(error, SystemExit):
        return f"it ends the program, by sys.exit({'' if error.code is None else repr(error.code)})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
