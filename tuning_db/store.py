"""The tuning database: layers of record files. Only the last one may be written.

Opening reads the users' files whole, and skips and names lines that are no records. The files that
come with neocpu are read when a record is requested: see `packed`. Many processes may append to one
file at once: see `record_file`. Records that others append after the opening are not seen.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import platformdirs

from neocpu.foundation.errors import UsageError
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.tuning_db.nearest import relatives, shape_of, similar_workloads
from neocpu.tuning_db.packed import PackedRecords
from neocpu.tuning_db.record import Record, TargetKey, Workload, record_key
from neocpu.tuning_db.record_file import (
    OnRead,
    SkippedLine,
    append_lines,
    is_missing,
    read_packed,
    read_records,
    silent,
)


def default_database() -> Path:
    """Return the user's own database, in the platform's data folder."""
    return platformdirs.user_data_path("neocpu") / "records.jsonl"


def shipped_databases() -> tuple[Path, ...]:
    """Return the record files that come with neocpu."""
    return tuple(sorted((Path(__file__).parent / "records").glob("*.records")))


def refuse_shipped(path: Path) -> None:
    """Make sure that ``path`` is not a shipped file. Raises UsageError if it is one."""
    if os.path.realpath(path) in set(map(os.path.realpath, shipped_databases())):
        raise UsageError(f"{path} comes with neocpu and is never changed: name another file")


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Records of a similar workload, of another CPU or of another thread count."""

    workload: Workload
    target: TargetKey
    records: Mapping[Scheme, Record]


class Store:
    """Records of several files, found by workload, target and thread count. `skipped` has the lines
    of the files that are no records. `append` writes to `writable`.
    """

    def __init__(
        self,
        writable: Path | None,
        template_version: Callable[[str], int],
        shipped: Sequence[Path] = (),
    ) -> None:
        self.writable = writable
        self.skipped: tuple[SkippedLine, ...] = ()
        self._template_version = template_version
        self._shipped_paths = tuple(shipped)
        status = [path.stat() for path in shipped]
        self._shipped_state = [(each.st_size, each.st_mtime_ns) for each in status]
        self._records: dict[tuple[Workload, TargetKey], dict[Scheme, Record]] = {}
        self._shapes: dict[tuple[Hashable, TargetKey], list[Workload]] = {}
        self._shipped_shapes: dict[TargetKey, dict[Hashable, list[Workload]]] = {}
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

        Later is a matter of places, never of clocks, which may run backwards. `writable` need not
        exist yet. It is only read here, so a read-only database can be opened; see
        `ensure_writable`. Records of other versions than `template_version` returns are left out:
        the code they measured is no longer what would run. `shipped` are packed files, which count
        as older than all others. Raises DatabaseError if a file is missing (``writable`` may be),
        unreadable, or no file.
        """
        store = cls(writable, template_version, shipped)
        files = list(paths)
        if writable is not None and not is_missing(writable):
            files.append(writable)
        skipped: list[SkippedLine] = []
        for path in files:
            contents = read_records(path, on_read)
            store._digest.update(contents.data)
            skipped += contents.skipped
            for line in contents.lines:
                store._add(line.record)
        store.skipped = tuple(skipped)
        return store

    @property
    def state(self) -> str:
        """A text that changes with any record: stores of equal state give equal answers."""
        names = list(map(str, self._shipped_paths))
        return f"{names} {self._shipped_state} {self._digest.hexdigest()}"

    def read(self) -> None:
        """Read the files that come with neocpu now, and not when somebody asks for a record."""
        for target in self._targets():
            self._shapes_on(target)

    def __len__(self) -> int:
        return sum(map(len, self._every().values()))

    def __iter__(self) -> Iterator[Record]:
        every = self._every()
        for key in sorted(every, key=lambda key: record_key(*key)):  # whatever the files' order
            yield from every[key].values()

    def results(self, workload: Workload, target: CpuTarget, threads: int) -> dict[Scheme, Record]:
        return self._found(workload, TargetKey.of(target, threads))

    def best(self, workload: Workload, target: CpuTarget, threads: int) -> Record | None:
        found = self.results(workload, target, threads).values()
        usable = (record for record in found if record.result.error is None)
        return min(usable, key=lambda record: record.result.best, default=None)

    def lenders(self, workload: Workload, target: CpuTarget, threads: int) -> Iterator[Borrowed]:
        """Yield records that may stand in for a workload's own, failed ones too, the best first.

        Those of similar workloads on this very CPU come first (see `similar_workloads`), then the
        workload's own on relatives (see `nearest.relatives`), then those of similar workloads
        there. Each has one that did not fail.
        """
        own = TargetKey.of(target, threads)
        others = relatives(own, self._targets())
        pairs = itertools.chain(
            ((similar, own) for similar in self._similar(workload, own)),
            ((workload, key) for key in others),
            ((similar, key) for key in others for similar in self._similar(workload, key)),
        )
        for lender, key in pairs:
            found = self._found(lender, key)
            if any(record.result.error is None for record in found.values()):
                yield Borrowed(lender, key, found)

    def ensure_writable(self) -> None:
        """Make sure `append` will work, creating the file and its folder if need be. Raises
        UsageError if the file is a shipped database.
        """
        refuse_shipped(self._destination())
        append_lines(self._destination(), [])

    def append(self, records: Sequence[Record]) -> None:
        """Add records, on disk before this returns; several at once are cheaper than one by one.

        Raises DatabaseError if the file cannot be written. Its former content stays, and so do
        those ``records`` that were written.
        """
        if not records:
            return
        lines = [record.to_line().encode() for record in records]
        append_lines(self._destination(), lines)
        self._digest.update(b"".join(lines))
        for record in records:
            self._add(record)

    def _destination(self) -> Path:
        assert self.writable is not None, "the store was opened for reading only"
        return self.writable

    @cached_property
    def _shipped(self) -> tuple[PackedRecords, ...]:
        return tuple(map(read_packed, self._shipped_paths))

    def _targets(self) -> set[TargetKey]:
        shipped = (target for packed in self._shipped for target in packed.targets)
        return {*shipped, *(target for _, target in self._records)}

    def _found(self, workload: Workload, target: TargetKey) -> dict[Scheme, Record]:
        shipped = (record for packed in self._shipped for record in packed.find(workload, target))
        found = {record.scheme: record for record in shipped if self._is_current(record)}
        return found | self._records.get((workload, target), {})

    def _every(self) -> dict[tuple[Workload, TargetKey], dict[Scheme, Record]]:
        every: dict[tuple[Workload, TargetKey], dict[Scheme, Record]] = {}
        for record in itertools.chain.from_iterable(self._shipped):
            if self._is_current(record):
                every.setdefault((record.workload, record.target), {})[record.scheme] = record
        for key, records in self._records.items():
            every[key] = every.get(key, {}) | records
        return every

    def _similar(self, workload: Workload, target: TargetKey) -> list[Workload]:
        shape = shape_of(workload)
        if shape is None:
            return []
        shipped = self._shapes_on(target).get(shape, ())
        present = dict.fromkeys((*self._shapes.get((shape, target), ()), *shipped))
        return similar_workloads(workload, present)

    def _shapes_on(self, target: TargetKey) -> dict[Hashable, list[Workload]]:
        """Return the shipped workloads that have records on a target, by their shape."""
        if target not in self._shipped_shapes:
            shapes = self._shipped_shapes[target] = {}
            for packed in self._shipped:
                for other in packed.workloads(target):
                    shapes.setdefault(shape_of(other), []).append(other)
        return self._shipped_shapes[target]

    def _add(self, record: Record) -> None:
        if not self._is_current(record):
            return
        key = record.workload, record.target
        if key not in self._records:
            self._shapes.setdefault((shape_of(record.workload), record.target), []).append(
                record.workload
            )
        self._records.setdefault(key, {})[record.scheme] = record

    def _is_current(self, record: Record) -> bool:
        return record.env.template_version == self._template_version(record.scheme.template)
