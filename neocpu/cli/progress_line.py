"""Show the progress of long work: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from neocpu.foundation.plain_text import plain
from neocpu.foundation.progress import Progress, ProgressCallback, silent

PLAIN_INTERVAL: Final = 2.0
"""Seconds between two plain lines of one phase."""


class PlainProgress:
    """Writes a line when a phase begins, and one every `PLAIN_INTERVAL` while it lasts."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._phase = ""
        self._written = 0.0

    def __call__(self, progress: Progress) -> None:
        """Report one step."""
        now = self._clock()
        if progress.phase == self._phase and now - self._written < PLAIN_INTERVAL:
            return
        self._phase, self._written = progress.phase, now
        count = f"{progress.done}/{progress.total}" if progress.total else ""
        words = (f"neocpu: {progress.phase}", count, progress.detail)
        print(plain(" ".join(filter(None, words))), file=self._stream, flush=True)


@contextmanager
def live_progress() -> Iterator[ProgressCallback]:
    """Show one line on the terminal of standard error; it disappears in the end."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    phase = ""
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None, count="", detail="")

        def report(progress: Progress) -> None:
            nonlocal phase
            if progress.phase != phase:
                phase = progress.phase
                display.reset(task, description=escape(plain(phase)))
            display.update(
                task,
                total=progress.total or None,
                completed=progress.done,
                count=f"{progress.done}/{progress.total}" if progress.total else "",
                detail=escape(plain(progress.detail)),
            )

        yield report


@contextmanager
def show_progress(stream: TextIO, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Yield the callback that suits ``stream``; a quiet one reports nothing."""
    if quiet:
        yield silent
    elif stream.isatty():
        with live_progress() as report:
            yield report
    else:
        yield PlainProgress(stream)
