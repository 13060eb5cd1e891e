"""Record files that come with neocpu: a line is parsed when somebody asks for its workload.

They hold tens of thousands of records, of which a compilation needs some dozen. neocpu wrote them,
so a workload and target have one spelling in them, and equal bytes are all that is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from neocpu.tuning_db.record import LineParser, Record, TargetKey, Workload, subject_text
from neocpu.tuning_db.record_file import SkippedLine, read_database, skipped_line

_SCHEME: Final = b',"scheme":'
"""What ends a subject on its line."""

_log = logging.getLogger("neocpu")


class Shelf:
    """Lines of record files by their subjects, each there until it is taken.

    A line that is no record is skipped with a warning, once somebody asks for it.

    Parameters
    ----------
    paths : sequence of Path
        Files whose lines `Record.to_line` wrote.

    Raises
    ------
    DatabaseError
        If one is missing or unreadable.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._parser = LineParser()
        self._lines: dict[bytes, list[bytes]] = {}
        beginning, lines = b"\n", []
        for path in paths:
            for line in read_database(path).split(b"\n"):
                if not line.startswith(beginning) and line.strip():
                    subject, mark, _ = line.partition(_SCHEME)
                    beginning = subject + mark if mark else b"\n"
                    lines = self._lines.setdefault(subject, [])
                if line.strip():
                    lines.append(line)

    def targets(self) -> set[TargetKey]:
        """Return what the records were measured on."""
        tails = {subject.rpartition(b',"target":')[2]: subject for subject in self._lines}
        found = set()
        for subject in tails.values():
            try:
                record, _ = self._parser.parse(self._lines[subject][0])
            except ValueError:  # said when it is asked for
                continue
            found.add(record.target)
        return found

    def take(self, workload: Workload, target: TargetKey) -> Iterable[tuple[Record, str]]:
        """Take all records of a workload on a target, each with its key, in the files' order."""
        return self._parse(self._lines.pop(subject_text(workload, target).encode(), []))

    def take_all(self) -> Iterable[tuple[Record, str]]:
        """Take what is left, in the files' order."""
        lines, self._lines = self._lines, {}
        for found in lines.values():
            yield from self._parse(found)

    def _parse(self, lines: Iterable[bytes]) -> Iterator[tuple[Record, str]]:
        for line in lines:
            try:
                yield self._parser.parse(line)
            except ValueError as error:
                _log.warning("%s", self._skipped(line, error))

    def _skipped(self, text: bytes, error: ValueError) -> SkippedLine:
        """Say which line it is: those of sound files are not numbered."""
        for path in self._paths:
            lines = read_database(path).split(b"\n")
            if text in lines:
                return skipped_line(path, lines.index(text) + 1, text, error)
        return skipped_line(self._paths[0], 0, text, error)  # replaced meanwhile
