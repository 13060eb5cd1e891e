"""Run code of users and of other packages, and report its failures as their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.foundation.plain_text import shortened

_LONGEST: Final = 1000
"""The most characters of an exception's message, which may be of any length."""


@contextmanager
def foreign_code(failure: Callable[[BaseException], NeoCPUError]) -> Iterator[None]:
    """Run code that is not ours; raise what ``failure`` makes of its exception, ``sys.exit`` too.

    Ctrl-C and a `UsageError` pass unchanged.
    """
    try:
        yield
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:
        raise failure(error) from error


def one_line(error: BaseException) -> str:
    """Return an exception on one line, shortened if it is long."""
    name = type(error).__name__
    try:
        if isinstance(error, SystemExit):
            code = "" if error.code is None else repr(error.code)
            return shortened(f"it ends the program, by sys.exit({code})", _LONGEST)
        text = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exception's own `__str__` is foreign code too
        text = ""
    return shortened(f"{name}: {text}" if text else name, _LONGEST)
