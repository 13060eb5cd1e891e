"""The tuning database: layers of record files, of which the last may be written.

Reading takes whole files at once and skips what is not a record, naming it. Writing appends: each
record is one ``write`` to a file opened with ``O_APPEND``, under a lock, and on disk before
`append` returns, so many writers at once lose nothing and a crash tears one line at most.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from neocpu.schedules.errors import DatabaseError
from neocpu.schedules.scheme import Scheme
from neocpu.schedules.target import CpuTarget
from neocpu.tuning_db.record import LineParser, Record, TargetKey, Workload, record_key

LOCK_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that is not a record: torn by a crash, or foreign."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: skipped: {self.reason}"


def default_database() -> Path:
    """Return the user's own database, in the platform's data folder."""
    return platformdirs.user_data_path("neocpu") / "records.jsonl"


def shipped_databases() -> tuple[Path, ...]:
    """Return the record files that come with neocpu."""
    return tuple(sorted((Path(__file__).parent / "records").glob("*.jsonl")))


class Store:
    """Records of several files, found by workload, target and thread count.

    Attributes
    ----------
    skipped : tuple of SkippedLine
        Lines of the files that are not records.
    writable : Path or None
        Where `append` writes.
    """

    def __init__(self, writable: Path | None, template_version: Callable[[str], int]) -> None:
        self.writable = writable
        self.skipped: tuple[SkippedLine, ...] = ()
        self._template_version = template_version
        self._records: dict[str, dict[Scheme, Record]] = {}

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        writable: Path | None,
        template_version: Callable[[str], int],
    ) -> Store:
        """Read ``paths`` and then ``writable``; of two records of a scheme the later one counts.

        Parameters
        ----------
        paths : sequence of Path
            Files to read only, such as `shipped_databases`.
        writable : Path or None
            File that `append` writes; need not exist yet. It is only read here, so a read-only
            database can be opened; see `ensure_writable`.
        template_version : callable
            Template name to its current version. Records of another version are left out: the code
            they measured is no longer what would run.

        Raises
        ------
        DatabaseError
            If a file is missing (``writable`` may be), unreadable, or a folder.
        """
        store = cls(writable, template_version)
        skipped: list[SkippedLine] = []
        for path in paths:
            skipped += store._read(path)
        if writable is not None and (writable.exists() or writable.is_symlink()):
            skipped += store._read(writable)
        store.skipped = tuple(skipped)
        return store

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def __iter__(self) -> Iterator[Record]:
        for by_scheme in self._records.values():
            yield from by_scheme.values()

    def results(self, workload: Workload, target: CpuTarget, threads: int) -> dict[Scheme, Record]:
        """Return every scheme measured for ``workload``, failed ones too."""
        return dict(self._records.get(record_key(workload, TargetKey.of(target, threads)), {}))

    def best(self, workload: Workload, target: CpuTarget, threads: int) -> Record | None:
        """Return the fastest record that did not fail, or None."""
        found = self.results(workload, target, threads).values()
        usable = (record for record in found if record.result.error is None)
        return min(usable, key=lambda record: record.result.best, default=None)

    def ensure_writable(self) -> None:
        """Make sure `append` will work, creating the file and its folder if need be.

        Raises
        ------
        DatabaseError
            If it will not.
        """
        path = self._destination()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock(path):
                os.close(_open_for_append(path))
        except OSError as error:
            raise _write_error(path, error) from None

    def append(self, records: Sequence[Record]) -> None:
        """Add records, on disk before this returns.

        Raises
        ------
        DatabaseError
            If the file cannot be written. What the file held stays; what could be written of
            ``records`` stays too.
        """
        if not records:
            return
        path = self._destination()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock(path):
                _append_lines(path, [record.to_line().encode() for record in records])
        except OSError as error:
            raise _write_error(path, error) from None
        for record in records:
            self._add(record, record.key())

    def _destination(self) -> Path:
        assert self.writable is not None, "the store was opened for reading only"
        return self.writable

    def _lock(self, path: Path) -> filelock.BaseFileLock:
        # The operating system drops the lock of a process that dies.
        return filelock.FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT)

    def _read(self, path: Path) -> list[SkippedLine]:
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            reason = error.strerror or str(error)
            raise DatabaseError(
                f"cannot read tuning database {path}: {reason}; pass another file with --db"
            ) from None
        parser = LineParser()
        skipped: list[SkippedLine] = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record, key = parser.parse(line)
            except ValueError as error:
                skipped.append(SkippedLine(path, number, str(error)))
                continue
            self._add(record, key)
        return skipped

    def _add(self, record: Record, key: str) -> None:
        if record.env.template_version == self._template_version(record.scheme.template):
            self._records.setdefault(key, {})[record.scheme] = record


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _append_lines(path: Path, lines: list[bytes]) -> None:
    """Append whole lines to ``path``, whose lock is held; end a torn last line first."""
    stream = _open_for_append(path)
    try:
        size = os.fstat(stream).st_size
        if size and os.pread(stream, 1, size - 1) != b"\n":
            lines = [b"\n" + lines[0], *lines[1:]]
        for line in lines:
            written = os.write(stream, line)
            if written < len(line):
                os.ftruncate(stream, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size += written
        os.fsync(stream)
    finally:
        os.close(stream)


def _write_error(path: Path, error: OSError) -> DatabaseError:
    if isinstance(error, filelock.Timeout):
        return DatabaseError(
            f"cannot write tuning database {path}: {error.lock_file} has been held by another "
            f"process for {LOCK_TIMEOUT:.0f} s; wait for it or pass another file with --db"
        )
    reason = error.strerror or str(error)
    return DatabaseError(
        f"cannot write tuning database {path}: {reason}; free it or pass another file with --db"
    )
