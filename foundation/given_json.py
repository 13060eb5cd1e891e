"""Read JSON files from anybody, with bounds on what they can make a process allocate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from neocpu.foundation.errors import MissingFileError, NeoCPUError, UsageError
from neocpu.foundation.files import read_file

MAX_INTEGER: Final = (1 << 53) - 1
"""The largest magnitude of an integer: any reader of JSON and any float has it exactly."""
MAX_VALUES: Final = 1 << 22
"""The most values of a document. Each may take 30 times its bytes of text in memory."""


def parse_json(text: bytes) -> Any:
    """Parse JSON from anybody. Numbers are finite and bounded, and so is the count of values.

    Raises ValueError, or RecursionError for text nested deeper than Python parses.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    return _DECODER.decode(text.decode().strip())


def _integer(digits: str) -> int:
    # A longer text is not even converted, which would take time quadratic in its length.
    if len(digits) > 1 + len(str(MAX_INTEGER)) or abs(value := int(digits)) > MAX_INTEGER:
        raise ValueError(f"{shortened(digits)} is beyond all numbers here")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{shortened(digits)} is beyond all numbers here")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def shortened(text: str) -> str:
    """Return a text for a message: if it is long, its beginning and its length."""
    return text if len(text) <= 24 else f"{text[:20]}… ({len(text)} characters)"


MISTAKES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The exceptions that reading JSON of an unexpected form may raise."""

_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


@contextmanager
def given_json(path: Path, option: str, kind: str, limit: int, remedy: str) -> Iterator[Any]:
    """Read a file, and turn any exception that its content causes into one error.

    `limit`: the most bytes that it may have. Raises UsageError: the file cannot be read, or the
    block raises an exception because of its content.
    """
    try:
        yield parse_json(read_file(path, limit))
    except NeoCPUError:  # some are an OSError or a ValueError too
        raise
    except OSError as error:
        kind_of = MissingFileError if isinstance(error, FileNotFoundError) else UsageError
        raise kind_of(f"cannot read {option} {path}: {error.strerror or error}") from None
    except MISTAKES as error:
        name = type(error).__name__
        raise UsageError(f"{option} {path} is no {kind} of neocpu ({name}); {remedy}") from None
