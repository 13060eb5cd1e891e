"""The findings of ``neocpu doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from neocpu.foundation.errors import NeoCPUError, dependency_error

Status: TypeAlias = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    name: str  # name of the thing that was checked
    status: Status  # ``ok``, ``warning`` (neocpu works), or ``failed`` (it does not)
    detail: str  # result of the check
    fix: str = ""  # advice on a warning or a failure


Check: TypeAlias = Callable[[], Iterator[Finding]]


def examine(checks: Sequence[Check]) -> Iterator[Finding]:
    """Run all checks in order; one that raises yields a failed finding."""
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            yield from check()
        except NeoCPUError as error:
            yield Finding(name, "failed", str(error))
        except Exception as error:
            what = dependency_error(error) or f"{type(error).__name__}: {last_line(str(error))}"
            yield Finding(name, "failed", str(what))


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
