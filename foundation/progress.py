"""What long work tells its caller on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a long operation.

    Attributes
    ----------
    phase : str
        What is being done, such as ``tune`` or ``build``.
    done, total : int
        Steps finished and steps in all; ``total`` is 0 when unknown.
    detail : str
        For people.
    lines : tuple of str
        More for people, where there is room for it below.
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    lines: tuple[str, ...] = ()


ProgressCallback: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Ignore progress."""


def of_part(report: ProgressCallback, kind: str, number: int, count: int) -> ProgressCallback:
    """Return where the progress of one of ``count`` parts goes: ``shape 2 of 3: tune``."""
    if count == 1:
        return report

    def tell(step: Progress) -> None:
        report(replace(step, phase=f"{kind} {number + 1} of {count}: {step.phase}"))

    return tell
