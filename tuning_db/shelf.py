"""Record files that come with neocpu: read when somebody asks, a line when it is its workload's.

They hold tens of thousands of records, of which a compilation needs some dozen. neocpu wrote them,
so a workload and target have one spelling in them, and equal bytes are all that is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from neocpu.tuning_db.record import LineParser, Record, TargetKey, Workload, subject_text
from neocpu.tuning_db.record_file import SkippedLine, read_database, skipped_line

_SCHEME: Final = b',"scheme":'
"""What ends a subject on its line."""
_TARGET: Final = b',"target":'
"""What its last part begins with."""

_PADDING: Final = b',"padding":'
"""What the sizes of a convolution end before."""

_log = logging.getLogger("neocpu")


class Shelf:
    """Lines of record files by their subjects, each there until it is taken.

    A line that is no record is skipped with a warning, once somebody asks for it.

    Parameters
    ----------
    paths : sequence of Path
        Files whose lines `Record.to_line` wrote.

    Attributes
    ----------
    state : str
        Changes with the files, which are not read for it.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._parser = LineParser()
        self._is_read = False
        self._lines: dict[bytes, list[bytes]] = {}
        self._samples: list[bytes] = []
        self._subjects: tuple[bytes, ...] = ()
        self._alike: dict[tuple[bytes, bytes], list[bytes]] = {}
        looks = [(str(path), path.stat()) for path in paths]
        self.state = repr([(name, look.st_size, look.st_mtime_ns) for name, look in looks])

    @cached_property
    def targets(self) -> set[TargetKey]:
        """What the records were measured on."""
        self._read()
        found = set()
        for line in self._samples:
            try:
                record, _ = self._parser.parse(line)
            except ValueError:  # said when it is asked for
                continue
            found.add(record.target)
        return found

    def take(self, workload: Workload, target: TargetKey) -> Iterable[tuple[Record, str]]:
        """Take all records of a workload on a target, each with its key, in the files' order.

        Raises
        ------
        DatabaseError
            If a file is missing or unreadable, as of all that reads them.
        """
        self._read()
        return self._parse(self._lines.pop(subject_text(workload, target).encode(), []))

    def alike(self, workload: Workload, target: TargetKey) -> list[Workload]:
        """Return the workloads on a target whose sizes are those of this one, as `cousins` are."""
        self._read()
        if not self._alike:
            for subject in self._subjects:
                self._alike.setdefault(_sizes(subject), []).append(subject)
        found = self._alike.get(_sizes(subject_text(workload, target).encode()), [])
        workloads = []
        for subject in found:
            try:
                workloads.append(self._parser.subject(subject)[0])
            except ValueError:  # said when its records are asked for
                continue
        return workloads

    def take_all(self) -> Iterable[tuple[Record, str]]:
        """Take what is left, in the files' order."""
        self._read()
        lines, self._lines = self._lines, {}
        for found in lines.values():
            yield from self._parse(found)

    def _read(self) -> None:
        """Read the files, once."""
        if self._is_read:
            return
        self._is_read = True
        beginning, lines = b"\n", []
        for path in self._paths:
            for line in read_database(path).split(b"\n"):
                if not line.startswith(beginning) and line.strip():
                    subject, mark, _ = line.partition(_SCHEME)
                    beginning = subject + mark if mark else b"\n"
                    lines = self._lines.setdefault(subject, [])
                if line.strip():
                    lines.append(line)
        self._subjects = tuple(self._lines)
        tails = {subject.rpartition(_TARGET)[2]: subject for subject in self._lines}
        self._samples = [self._lines[subject][0] for subject in tails.values()]

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


def _sizes(subject: bytes) -> tuple[bytes, bytes]:
    """Return what a subject says of a convolution's sizes, and its target."""
    return subject.partition(_PADDING)[0], subject.rpartition(_TARGET)[2]
