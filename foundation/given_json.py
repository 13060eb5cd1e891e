"""Files of JSON that a command is given: anybody may have written them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import read_file


@contextmanager
def given_json(path: Path, option: str, kind: str, limit: int, remedy: str) -> Iterator[Any]:
    """Read a file, and have all that its content raises said of it.

    Parameters
    ----------
    option : str
        What names the file on the command line.
    kind : str
        What it should be.
    limit : int
        Bytes that it may have.
    remedy : str
        How to make such a file.

    Raises
    ------
    UsageError
        If it cannot be read, or in place of what is raised of its content.
    """
    try:
        yield json.loads(read_file(path, limit))
    except OSError as error:
        raise UsageError(f"cannot read {option} {path}: {error.strerror or error}") from None
    except (
        *(ArithmeticError, AttributeError, LookupError),
        *(RecursionError, TypeError, ValueError),
    ) as error:
        name = type(error).__name__
        raise UsageError(f"{option} {path} is no {kind} of neocpu ({name}); {remedy}") from None
