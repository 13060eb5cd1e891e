"""A file of tuning records, which is read whole, appended to by lines, or replaced as a whole.

Lines are independent: a torn or foreign one is skipped and reported, and harms no other. Writers
lock a separate file, because the file itself may be replaced; the kernel drops the lock of a
process that dies. A process that has the file open while it is replaced goes on reading the old
one.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from neocpu.foundation.errors import DatabaseError, MissingDatabaseError, NeoCPUError
from neocpu.foundation.files import (
    link_target,
    read_file,
    regular_status,
    replacement,
    special_kind,
    sync_folder,
)
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.tuning_db.packed import MAGIC, PackedRecords
from neocpu.tuning_db.record import Record, TargetKey, UnknownRecordError, Workload

# The record's key, its scheme, and the version of the scheme's template.
Slot: TypeAlias = tuple[Workload, TargetKey, Scheme, int]

LOCK_TIMEOUT = 60.0
# Writers hold the lock for microseconds, a merge for seconds.
POLL_SECONDS = 0.002
# Lines between two reports of progress.
REPORT_EVERY = 1000
# Bytes of a file: some hundred times as many as all networks' records take.
MAX_BYTES = 1 << 30
# Lines of a file: ten times as many as records ship. A record takes some kilobyte of memory, be its
# line ever so short.
MAX_LINES = 1 << 19
# Lines of a file that are no records to any version. A crash tears one.
MAX_DAMAGED = 10_000
# Characters of a reason: it may quote a line that another program wrote.
MAX_REASON = 200

# How most commands are given another file; those that take it otherwise replace this in errors.
OTHER_FILE = "pass another file with --db"

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
    """A record of a file."""

    line: int  # the number of its line; in a packed file its place
    written: bytes | None  # line without its newline; None in a packed file
    record: Record

    @property
    def text(self) -> bytes:
        """The record's line in the file, without its newline."""
        if self.written is None:
            return self.record.to_line().rstrip().encode()
        return self.written

    @property
    def slot(self) -> Slot:
        """The scheme and what it was measured on: of equal ones in a file only the last counts."""
        record = self.record
        return record.workload, record.target, record.scheme, record.env.template_version


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that is no record of this version: torn by a crash, impossible, or ``foreign``, maybe
    a whole record to another version of neocpu.
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
    """The bytes, records and other lines of a file at the time of reading, in order."""

    path: Path
    data: bytes
    lines: tuple[RecordLine, ...]
    skipped: tuple[SkippedLine, ...]

    @property
    def is_foreign(self) -> bool:
        return not self.lines and _begins_foreign(self.data[:_HEAD])

    def winners(self) -> dict[Slot, RecordLine]:
        """Return the last line of each slot, which supersedes those before it."""
        return {entry.slot: entry for entry in self.lines}


# A function that is called with the file, the number of lines read, and that of all its lines.
OnRead: TypeAlias = Callable[[Path, int, int], None]


def silent(path: Path, done: int, total: int) -> None:
    """Tell nobody."""


def read_records(path: Path, on_read: OnRead = silent) -> Contents:
    """Read all of ``path``, be it lines or packed; ``on_read`` is called on the way. Raises
    DatabaseError if the file is missing, unreadable or no file.
    """
    data = read_database(path)
    if data.startswith(MAGIC):
        packed = enumerate(_packed(path, data), start=1)
        return Contents(path, data, tuple(RecordLine(n, None, each) for n, each in packed), ())
    lines: list[RecordLine] = []
    skipped: list[SkippedLine] = []
    damaged, total = 0, data.count(b"\n") + 1
    for number, line in enumerate(io.BytesIO(data), start=1):
        text = line.removesuffix(b"\n")
        if number % REPORT_EVERY == 0:
            on_read(path, number, total)
        if not text.strip():
            continue
        try:
            lines.append(RecordLine(number, text, Record.from_line(text)))
        except ValueError as error:
            foreign = isinstance(error, UnknownRecordError)
            reason = str(error)[:MAX_REASON]
            skipped.append(SkippedLine(path, number, reason, text, foreign))
            damaged += not foreign
        if damaged > MAX_DAMAGED:
            raise _unreadable(path, f"more than {MAX_DAMAGED} of its lines are no records")
    return Contents(path, data, tuple(lines), tuple(skipped))


def read_packed(path: Path) -> PackedRecords:
    """Read a packed file; its records are decoded where they are asked for. Raises DatabaseError if
    the file is missing, unreadable, damaged or not packed.
    """
    return _packed(path, read_database(path))


def _packed(path: Path, data: bytes) -> PackedRecords:
    try:
        return PackedRecords(data)
    except ValueError as error:
        raise _unreadable(path, str(error)) from None


def read_database(path: Path) -> bytes:
    """Return the bytes of ``path``. Raises DatabaseError if the file is missing, unreadable or no
    file, or has more than `MAX_LINES` lines.
    """
    try:
        data = read_file(path, MAX_BYTES)
    except OSError as error:
        kind = MissingDatabaseError if isinstance(error, FileNotFoundError) else DatabaseError
        raise _unreadable(path, error.strerror or str(error), kind) from None
    if not data.startswith(MAGIC) and data.count(b"\n") > MAX_LINES:
        raise _unreadable(path, f"it has more than {MAX_LINES} lines")
    return data


def _unreadable(
    path: Path, reason: str, kind: type[DatabaseError] = DatabaseError
) -> DatabaseError:
    return kind(f"cannot read tuning database {path}: {reason}; {OTHER_FILE}")


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

    Makes the file and its folder if need be. No other writer's lines come between these. Raises
    DatabaseError if the file cannot be written, is of another kind, or its lock cannot be had. No
    line is left half written.
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
    """Hold the lock of ``path`` and yield the file it is, links followed; make its folder. Raises
    DatabaseError if another process holds the lock for `LOCK_TIMEOUT` seconds, or the file system
    refuses the lock or what the body does.
    """
    with _named_errors(path):
        link_target(path)  # of a link that somebody planted, no target is touched
        real = Path(os.path.realpath(path))  # resolve() has no OSError for a loop of links
        with suppress(FileNotFoundError):
            regular_status(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        name = f"{real}.lock"
        stream = _open_own(name, os.O_RDWR)
        try:
            if not _lock(stream):
                raise DatabaseError(
                    f"cannot write tuning database {path}: {name} has been held by another "
                    f"process for {LOCK_TIMEOUT:g} s; wait for it or {OTHER_FILE}"
                )
            yield real
        finally:
            # A child that was forked meanwhile has the descriptor too, so closing does not do.
            fcntl.flock(stream, fcntl.LOCK_UN)
            os.close(stream)


def replace_contents(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` by ``data``, or change nothing. The caller has the lock.

    Raises OSError if ``path`` is no file or may not be written, or the new file cannot be written.
    Raises DatabaseError if it is a file of another kind.
    """
    with suppress(FileNotFoundError):
        regular_status(path)
        with open(path, "rb") as file:
            _refuse_foreign(path, file.read(_HEAD))
        if not os.access(path, os.W_OK):  # replacing only needs rights to the folder
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with replacement(path, 0o644) as new:
        new.write(data)


def _begins_foreign(head: bytes) -> bool:
    begun = head.lstrip(b" \r\n\0")  # zeros are what a power failure leaves
    return bool(begun) and not begun.startswith(b"{")


def _refuse_foreign(path: Path, head: bytes) -> None:
    """Raise DatabaseError if a file begins like a model, an artifact or a page; we write JSON."""
    if _begins_foreign(head):
        raise DatabaseError(
            f"cannot write tuning database {path}: it is a file of another kind; pass another one"
        )


def _open_for_append(path: Path) -> int:
    return _open_own(path, os.O_RDWR | os.O_APPEND)


def _open_own(path: str | Path, flags: int) -> int:
    """Open an ordinary file, or make it: no link is followed, and no pipe or device waited for."""
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        stream = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", str(path)) from None
        raise
    if (kind := special_kind(os.fstat(stream).st_mode)) is not None:
        os.close(stream)
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return stream


def _lock(stream: int) -> bool:
    """Have a file's lock within `LOCK_TIMEOUT`; the kernel drops it with the process."""
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(POLL_SECONDS)


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
    except NeoCPUError:  # some are an OSError too
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename and os.path.realpath(error.filename) != os.path.realpath(path):
            reason += f": {error.filename}"  # such as the lock, or the folder
        fix = _FIXES.get(error.errno or 0, "mend that")
        raise DatabaseError(
            f"cannot write tuning database {path}: {reason}; {fix} or {OTHER_FILE}"
        ) from None
