"""Show the progress of long work: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from neocpu.foundation.plain_text import plain
from neocpu.foundation.progress import Progress, ProgressCallback, silent

PLAIN_INTERVAL: Final = 2.0
"""Seconds between two plain lines of one phase."""


class PlainProgress:
    """Writes a line when a phase begins, and then one every `PLAIN_INTERVAL` seconds.

    If the first line has no details, the first one with details follows at once.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._phase = ""
        self._written = 0.0
        self._has_detail = False

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        same = progress.phase == self._phase
        has_detail = bool(progress.detail)
        waits = self._has_detail or not has_detail
        if same and waits and now - self._written < PLAIN_INTERVAL:
            return
        self._phase, self._written = progress.phase, now
        self._has_detail = has_detail or same
        count = f"{progress.done}/{progress.total}" if progress.total else ""
        words = (f"neocpu: {progress.phase}", count, progress.detail)
        print(plain(" ".join(filter(None, words))), file=self._stream, flush=True)


@contextmanager
def live_progress() -> Iterator[ProgressCallback]:
    """Show a live line, with more lines below it, on the terminal of standard error."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.markup import escape
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    phase, below, console = "", "", Console(stderr=True)
    display = Display(*columns, console=console)
    task = display.add_task("start", total=None, count="", detail="")

    def shown() -> Group:
        lines = [Text(below, "dim", no_wrap=True, overflow="ellipsis")] if below else []
        return Group(display, *lines)

    with Live(get_renderable=shown, console=console, transient=True, refresh_per_second=10):

        def report(progress: Progress) -> None:
            nonlocal phase, below
            if progress.lines or progress.phase != phase:  # a new phase has no old lines
                below = "\n".join(map(plain, progress.lines))
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
    """Yield the callback that suits ``stream``. If ``quiet``, it reports nothing."""
    if quiet:
        yield silent
    elif stream.isatty() and os.environ.get("TERM") != "dumb":  # "dumb" cannot redraw a line
        with live_progress() as report:
            yield report
    else:
        yield PlainProgress(stream)
