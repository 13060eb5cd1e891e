"""A file of tuning records: read whole, appended to line by line, replaced as a whole.

A line stands for itself: one that is torn or foreign is skipped by name and harms no other. Writers
hold a lock beside the file, because the file itself may be replaced; the kernel drops the lock of a
process that dies. Whatever is open while the file is replaced goes on reading the old one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import filelock

from neocpu.foundation.errors import DatabaseError
from neocpu.foundation.files import read_file, regular_status, sync_folder
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.tuning_db.record import LineParser, Record, UnknownRecordError

# Workload and target (the record's key), scheme, template version.
Slot: TypeAlias = tuple[str, Scheme, int]

LOCK_TIMEOUT = 60.0
# Writers hold the lock for microseconds, a merge for seconds.
POLL_SECONDS = 0.002
# Lines between two reports of progress.
REPORT_EVERY = 1000
# Bytes of a file: some hundred times as many as all networks' records take.
MAX_BYTES = 1 << 30
# Characters of a reason: it may quote a line that another program wrote.
MAX_REASON = 200

# Bytes by which a file of another kind is known.
_HEAD = 64

_FIXES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "make room",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "make it writable",
}


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line that is a record: its number, its bytes without the newline, and the record's key."""

    line: int
    text: bytes
    record: Record
    key: str

    @property
    def slot(self) -> Slot:
        """What only one record of a file counts of."""
        return self.key, self.record.scheme, self.record.env.template_version


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that is no record of this version: torn by a crash, impossible, or foreign.

    ``foreign`` ones may be whole records to another version of neocpu.
    """

    path: Path
    line: int
    reason: str
    text: bytes
    foreign: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: skipped: {self.reason}"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file held when it was read: its bytes, records and other lines, in order."""

    path: Path
    data: bytes
    lines: tuple[RecordLine, ...]
    skipped: tuple[SkippedLine, ...]

    def winners(self) -> dict[Slot, RecordLine]:
        """Return the last line of each slot, which supersedes those before it."""
        return {entry.slot: entry for entry in self.lines}


# Told of the file, the lines read, and how many it has.
OnRead: TypeAlias = Callable[[Path, int, int], None]


def silent(path: Path, done: int, total: int) -> None:
    """Tell nobody."""


def read_records(path: Path, on_read: OnRead = silent) -> Contents:
    """Read all of ``path``; ``on_read`` is called on the way.

    Raises
    ------
    DatabaseError
        If the file is missing, unreadable or no file.
    """
    data = read_database(path)
    parser = LineParser()
    lines: list[RecordLine] = []
    skipped: list[SkippedLine] = []
    texts = data.split(b"\n")
    for number, text in enumerate(texts, start=1):
        if number % REPORT_EVERY == 0:
            on_read(path, number, len(texts))
        if not text.strip():
            continue
        try:
            lines.append(RecordLine(number, text, *parser.parse(text)))
        except ValueError as error:
            skipped.append(skipped_line(path, number, text, error))
    return Contents(path, data, tuple(lines), tuple(skipped))


def skipped_line(path: Path, number: int, text: bytes, error: ValueError) -> SkippedLine:
    """Return what is said of a line that did not parse."""
    foreign = isinstance(error, UnknownRecordError)
    return SkippedLine(path, number, str(error)[:MAX_REASON], text, foreign)


def read_database(path: Path) -> bytes:
    """Return the bytes of ``path``.

    Raises
    ------
    DatabaseError
        If the file is missing, unreadable or no file.
    """
    try:
        return read_file(path, MAX_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DatabaseError(
            f"cannot read tuning database {path}: {reason}; pass another file with --db"
        ) from None


def is_missing(path: Path) -> bool:
    """Whether there is nothing at ``path``; what cannot be looked at is not missing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Add ``lines``, each with its newline, to ``path``; they are on disk when this returns.

    Makes the file and its folder if need be. No other writer's lines come between or apart.

    Raises
    ------
    DatabaseError
        If the file cannot be written, is of another kind, or its lock cannot be had. No line is
        left half written.
    """
    with ExitStack() as opened:
        with locked(path) as real:
            stream = _open_for_append(real)
            opened.callback(os.close, stream)
            size = os.fstat(stream).st_size
            _refuse_foreign(path, os.pread(stream, min(size, _HEAD), 0))
            _write_lines(stream, size, lines)
            if size == 0:
                sync_folder(real.parent)
        # After the lock: a file system syncs for several writers at once.
        with _named_errors(path):
            os.fsync(stream)


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold the lock of ``path`` and yield the file it is, links followed; make its folder.

    Raises
    ------
    DatabaseError
        If another process holds the lock for `LOCK_TIMEOUT` seconds, or the file system refuses
        the lock or what the body does.
    """
    with _named_errors(path):
        real = Path(os.path.realpath(path))  # resolve() has no OSError for a loop of links
        with suppress(FileNotFoundError):
            regular_status(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        name = f"{real}.lock"
        try:
            with filelock.FileLock(name).acquire(LOCK_TIMEOUT, POLL_SECONDS):
                yield real
        except filelock.Timeout:
            raise DatabaseError(
                f"cannot write tuning database {path}: {name} has been held by another "
                f"process for {LOCK_TIMEOUT:g} s; wait for it or pass another file with --db"
            ) from None


def replace_contents(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of all that ``path`` holds, or change nothing; the lock is held.

    Raises
    ------
    OSError
        If ``path`` is no file or may not be written, or the new one cannot be.
    DatabaseError
        If it is a file of another kind.
    """
    old: os.stat_result | None = None
    with suppress(FileNotFoundError):
        old = regular_status(path)
        with open(path, "rb") as file:
            _refuse_foreign(path, file.read(_HEAD))
        if not os.access(path, os.W_OK):  # to replace it is a right to its folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # Of one name, so that a killed process leaves one file at most, which the next one overwrites.
    new = path.with_name(f"{path.name}.new")
    stream = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if old is not None:
            with suppress(PermissionError):
                os.fchmod(stream, stat.S_IMODE(old.st_mode))
                os.fchown(stream, old.st_uid, old.st_gid)
        _write(stream, data)
        os.fsync(stream)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(stream)
    sync_folder(path.parent)


def _refuse_foreign(path: Path, head: bytes) -> None:
    """Refuse to write to a model, an artifact or a page, by how it begins; records are JSON.

    Raises
    ------
    DatabaseError
        If it is one.
    """
    begun = head.lstrip(b" \r\n\0")  # zeros are what a power failure leaves
    if begun and not begun.startswith(b"{"):
        raise DatabaseError(
            f"cannot write tuning database {path}: it is a file of another kind; pass another one"
        )


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _write_lines(stream: int, size: int, lines: Sequence[bytes]) -> None:
    """Append ``lines`` to a file of ``size`` bytes; end a torn last line first."""
    torn = size > 0 and os.pread(stream, 1, size - 1) != b"\n"
    for number, line in enumerate(lines):
        text = b"\n" + line if torn and number == 0 else line
        try:
            _write(stream, text)
        except OSError:
            with suppress(OSError):  # the next writer ends a line that stays torn
                os.ftruncate(stream, size)
            raise
        size += len(text)


def _write(stream: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view) :]


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Say of an error of the file system which database it hit, and what mends it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename and os.path.realpath(error.filename) != os.path.realpath(path):
            reason += f": {error.filename}"  # such as the lock, or the folder
        fix = _FIXES.get(error.errno or 0, "mend that")
        raise DatabaseError(
            f"cannot write tuning database {path}: {reason}; {fix} or pass another file with --db"
        ) from None
