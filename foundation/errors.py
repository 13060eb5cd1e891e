"""Every exception neocpu raises on a user's mistake, and its exit code.

A message names the cause, the place and the fix in one line. A bug in neocpu is an
``AssertionError``, never one of these. Some are also Python's own exceptions for the same mistake:
our code that catches one of Python's around more than one call lets a `NeoCPUError` pass first.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from neocpu.foundation.argument_names import with_arguments


class _Reader:
    """The reader of messages, one for all threads and forks of the process."""

    is_command_line: ClassVar[bool] = False


@contextmanager
def for_command_line() -> Iterator[None]:
    """Make messages name options, such as ``--shape``, while a command runs."""
    before, _Reader.is_command_line = _Reader.is_command_line, True
    try:
        yield
    finally:
        _Reader.is_command_line = before


class NeoCPUError(Exception):
    """Base of all errors a user can cause. ``exit_code`` is the command line's exit code."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """Return the message. It names options while a command runs, and arguments otherwise."""
        text = super().__str__()
        return text if _Reader.is_command_line else with_arguments(text)


class UsageError(NeoCPUError, ValueError):
    """A wrong option, argument, or input to a compiled module (name, shape, dtype)."""

    exit_code = 2


class DependencyError(UsageError, ImportError):
    """A package that neocpu needs is missing, or of a version that does not fit the others."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of the wrong type."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that an option or argument names, but no model, artifact or database."""


class MissingPackageError(DependencyError):
    """An optional package that is not installed."""


class ModelError(NeoCPUError):
    """The model file is missing, unreadable, not ONNX, or violates the ONNX standard."""

    exit_code = 3


class MissingModelError(ModelError, FileNotFoundError):
    """There is no such model file."""


class UnsupportedError(NeoCPUError):
    """A valid model that uses an operator or a shape neocpu cannot compile."""

    exit_code = 4


class TargetError(NeoCPUError, ValueError):
    """An unknown target, or an artifact whose instruction set this host lacks."""

    exit_code = 5


class AccuracyError(NeoCPUError):
    """The compiled module's output differs from the reference by more than the tolerance."""

    exit_code = 6


class DatabaseError(NeoCPUError):
    """A tuning database that cannot be read or written."""

    exit_code = 7


class MissingDatabaseError(DatabaseError, FileNotFoundError):
    """There is no such tuning database."""


class ArtifactError(NeoCPUError):
    """A compiled artifact that is truncated, tampered with, foreign or of another version."""

    exit_code = 8


def dependency_error(error: BaseException) -> DependencyError | None:
    """Return an error that names packages of the wrong versions as the cause; None if all fit."""
    try:
        # By name: neocpu-runtime lacks this module, and it needs a package that may be missing.
        why = importlib.import_module("neocpu.foundation.requirements").explain(error)
    except Exception:  # the metadata of packages are damaged; the error itself is still reported
        return None
    return None if why is None else DependencyError(why)


class MissingArtifactError(ArtifactError, FileNotFoundError):
    """There is no such artifact."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of ``known``, or an empty string."""
    import difflib  # here, because loading a model must not wait for it

    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
