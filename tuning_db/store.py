"""The tuning database: layers of record files, of which the last may be written.

Opening reads whole files and skips what is not a record, naming it; those that come with neocpu are
parsed where they are asked for: see `shelf`. Many processes may append to one file at once: see
`record_file`. What others append after the opening is not seen.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from neocpu.foundation.errors import UsageError
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.tuning_db.cousins import cousins, shape_of
from neocpu.tuning_db.nearest import relatives
from neocpu.tuning_db.record import Record, TargetKey, Workload, record_key
from neocpu.tuning_db.record_file import (
    OnRead,
    SkippedLine,
    append_lines,
    is_missing,
    read_records,
    silent,
)
from neocpu.tuning_db.shelf import Shelf


def default_database() -> Path:
    """Return the user's own database, in the platform's data folder."""
    return platformdirs.user_data_path("neocpu") / "records.jsonl"


def shipped_databases() -> tuple[Path, ...]:
    """Return the record files that come with neocpu."""
    return tuple(sorted((Path(__file__).parent / "records").glob("*.jsonl")))


def refuse_shipped(path: Path) -> None:
    """Make sure that ``path`` is not a shipped file.

    Raises
    ------
    UsageError
        If it is one.
    """
    if os.path.realpath(path) in set(map(os.path.realpath, shipped_databases())):
        raise UsageError(f"{path} comes with neocpu and is never changed: name another file")


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Records of a workload that were made on another CPU, with other threads, or of a cousin."""

    workload: Workload
    target: TargetKey
    records: Mapping[Scheme, Record]


class Store:
    """Records of several files, found by workload, target and thread count.

    Attributes
    ----------
    skipped : tuple of SkippedLine
        Lines of the files that are not records.
    writable : Path or None
        Where `append` writes.
    """

    def __init__(
        self, writable: Path | None, template_version: Callable[[str], int], shelf: Shelf
    ) -> None:
        self.writable = writable
        self.skipped: tuple[SkippedLine, ...] = ()
        self._template_version = template_version
        self._shelf = shelf
        self._records: dict[str, dict[Scheme, Record]] = {}
        self._targets: set[TargetKey] = set()
        self._by_shape: dict[tuple[Hashable, TargetKey], list[Workload]] = {}
        self._digest = hashlib.sha256()

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        writable: Path | None,
        template_version: Callable[[str], int],
        on_read: OnRead = silent,
        shipped: Sequence[Path] = (),
    ) -> Store:
        """Read ``paths`` and then ``writable``; of two records of a scheme the later one counts.

        Later is a matter of places, never of clocks, which may run backwards.

        Parameters
        ----------
        paths : sequence of Path
            Files to read only.
        writable : Path or None
            File that `append` writes; need not exist yet. It is only read here, so a read-only
            database can be opened; see `ensure_writable`.
        template_version : callable
            Template name to its current version. Records of another version are left out: the code
            they measured is no longer what would run.
        on_read : callable
            Told how far the reading is.
        shipped : sequence of Path
            Files that neocpu wrote itself, before all others: see `Shelf`.

        Raises
        ------
        DatabaseError
            If a file is missing (``writable`` may be), unreadable, or no file.
        """
        store = cls(writable, template_version, Shelf(shipped))
        files = list(paths)
        if writable is not None and not is_missing(writable):
            files.append(writable)
        skipped: list[SkippedLine] = []
        for path in files:
            contents = read_records(path, on_read)
            store._digest.update(contents.data)
            skipped += contents.skipped
            for line in contents.lines:
                store._add((line.record, line.key))
        store.skipped = tuple(skipped)
        return store

    @property
    def state(self) -> str:
        """What all records there are come to: stores of equal ones give equal answers."""
        return f"{self._shelf.state} {self._digest.hexdigest()}"

    def read(self) -> None:
        """Read the records that come with neocpu now, and not when some are asked for."""
        self._known_targets()

    def _known_targets(self) -> set[TargetKey]:
        return self._targets | self._shelf.targets

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Record]:
        self._add_older(self._shelf.take_all())
        for _, by_scheme in sorted(self._records.items()):  # whatever was asked for before
            yield from by_scheme.values()

    def results(self, workload: Workload, target: CpuTarget, threads: int) -> dict[Scheme, Record]:
        """Return every scheme measured for ``workload``, failed ones too."""
        return dict(self._found(workload, TargetKey.of(target, threads)))

    def best(self, workload: Workload, target: CpuTarget, threads: int) -> Record | None:
        """Return the fastest record that did not fail, or None."""
        found = self.results(workload, target, threads).values()
        usable = (record for record in found if record.result.error is None)
        return min(usable, key=lambda record: record.result.best, default=None)

    def lenders(self, workload: Workload, target: CpuTarget, threads: int) -> Iterator[Borrowed]:
        """Yield records that may stand in for a workload's own, failed ones too, the best first.

        Those of its cousins on this very CPU come first (see `cousins`), then its own on relatives
        (see `nearest.relatives`), then those of cousins there. Each has one that did not fail.
        """
        own = TargetKey.of(target, threads)
        others = relatives(own, self._known_targets())
        pairs = itertools.chain(
            ((cousin, own) for cousin in self._cousins(workload, own)),
            ((workload, key) for key in others),
            ((cousin, key) for key in others for cousin in self._cousins(workload, key)),
        )
        for lender, key in pairs:
            found = self._found(lender, key)
            if any(record.result.error is None for record in found.values()):
                yield Borrowed(lender, key, dict(found))

    def _cousins(self, workload: Workload, target: TargetKey) -> list[Workload]:
        if shape_of(workload) is None:
            return []
        mine = self._by_shape.get((shape_of(workload), target), ())
        return cousins(workload, dict.fromkeys((*mine, *self._shelf.alike(workload, target))))

    def ensure_writable(self) -> None:
        """Make sure `append` will work, creating the file and its folder if need be.

        Raises
        ------
        UsageError
            If the file is a shipped database.
        DatabaseError
            If it will not.
        """
        refuse_shipped(self._destination())
        append_lines(self._destination(), [])

    def append(self, records: Sequence[Record]) -> None:
        """Add records, on disk before this returns; several at once are cheaper than one by one.

        Raises
        ------
        DatabaseError
            If the file cannot be written. What the file held stays; what could be written of
            ``records`` stays too.
        """
        if not records:
            return
        lines = [record.to_line().encode() for record in records]
        append_lines(self._destination(), lines)
        self._digest.update(b"".join(lines))
        for record in records:
            self._add((record, record.key()))

    def _destination(self) -> Path:
        assert self.writable is not None, "the store was opened for reading only"
        return self.writable

    def _found(self, workload: Workload, target: TargetKey) -> Mapping[Scheme, Record]:
        self._add_older(self._shelf.take(workload, target))
        return self._records.get(record_key(workload, target), {})

    def _add_older(self, records: Iterable[tuple[Record, str]]) -> None:
        older: dict[str, dict[Scheme, Record]] = {}
        for record, key in filter(self._is_current, records):
            if key not in older and key not in self._records:
                self._note(record)
            older.setdefault(key, {})[record.scheme] = record
        for key, by_scheme in older.items():
            self._records[key] = by_scheme | self._records.get(key, {})

    def _add(self, keyed: tuple[Record, str]) -> None:
        if self._is_current(keyed):
            record, key = keyed
            self._targets.add(record.target)
            if key not in self._records:
                self._note(record)
            self._records.setdefault(key, {})[record.scheme] = record

    def _note(self, record: Record) -> None:
        """Note the workload of its first record on a target."""
        place = shape_of(record.workload), record.target
        self._by_shape.setdefault(place, []).append(record.workload)

    def _is_current(self, keyed: tuple[Record, str]) -> bool:
        record, _ = keyed
        return record.env.template_version == self._template_version(record.scheme.template)
