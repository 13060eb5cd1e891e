"""Record files that come with neocpu: a line is parsed when somebody asks for its workload.

They hold tens of thousands of records, of which a compilation needs some dozen. neocpu wrote them,
so a workload and target have one spelling in them, and equal bytes are all that is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import DatabaseError
from neocpu.tuning_db.record import LineParser, Record, TargetKey, Workload, subject_text
from neocpu.tuning_db.record_file import read_database

_SCHEME: Final = b',"scheme":'
"""What ends a subject on its line."""


class Shelf:
    """Lines of record files by their subjects, each there until it is taken.

    Parameters
    ----------
    paths : sequence of Path
        Files whose lines `Record.to_line` wrote.

    Raises
    ------
    DatabaseError
        If one is missing or unreadable, and later if a line that is asked for is no record.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._parser = LineParser()
        self._lines: dict[bytes, list[bytes]] = {}
        beginning, lines = b"\n", []
        for path in paths:
            for line in filter(None, read_database(path).split(b"\n")):
                if not line.startswith(beginning):
                    subject, mark, _ = line.partition(_SCHEME)
                    beginning, lines = subject + mark, self._lines.setdefault(subject, [])
                lines.append(line)

    def targets(self) -> set[TargetKey]:
        """Return what the records were measured on."""
        tails = {subject.rpartition(b',"target":')[2]: subject for subject in self._lines}
        return {
            record.target
            for subject in tails.values()
            for record, _ in self._parse(self._lines[subject][:1])
        }

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
                raise DatabaseError(
                    f"a record that came with neocpu is damaged: {error}; install it again"
                ) from None
