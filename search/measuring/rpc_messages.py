"""Messages to and from a session's process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neocpu.search.measuring.measure import Request


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request and the library it was built into."""

    request: Request
    library: Path
    tasks: tuple[int, ...]  # see `kernel_tasks`


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer when the session ended, so many seconds into a job."""

    seconds: float
