"""Code of users and of other packages, whatever it does: its failure is theirs, and an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.foundation.plain_text import shortened

_MOST_TOLD: Final = 1000
"""Characters of what an exception says: it may be any."""


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
        The error that ``failure`` makes; or a `UsageError` that the code itself raises.
    """
    try:
        yield
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:
        raise failure(error) from error


def told(error: BaseException) -> str:
    """Return on one line, which is cut where it is long, what code raised."""
    name = type(error).__name__
    try:
        if isinstance(error, SystemExit):
            code = "" if error.code is None else repr(error.code)
            return shortened(f"it ends the program, by sys.exit({code})", _MOST_TOLD)
        text = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # what it says of itself is its own code, too
        text = ""
    return shortened(f"{name}: {text}" if text else name, _MOST_TOLD)
