"""Read and write files: new ones appear whole or not at all, and reading one always ends.

A destination may be a link, which stays while its target is replaced. It may also be a device or a
pipe, such as ``/dev/null``, which is written to directly. Everything else is refused; so is, as in
the kernel, a link that another user has put into a folder where everybody may write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from neocpu.foundation.errors import ArtifactError, MissingFileError, NeoCPUError, UsageError
from neocpu.foundation.weight_files import weight_files

UNFINISHED: Final = r"\.neocpu-[0-9a-f]{16}"
"""A regular expression of the names of files that a killed process may leave unfinished."""

HUGE_PAGE: Final = 2 << 20
_PIECE: Final = 1 << 20
PIPE_PATIENCE: Final = 5.0
"""Seconds to wait for a reader of a named pipe, as both sides may just have been started."""
_NO_ANONYMOUS_FILES: Final = (errno.EISDIR, errno.EOPNOTSUPP, errno.ENOENT, errno.EINVAL)
"""The errors of file systems and kernels that lack ``O_TMPFILE``."""
_WRONG_PLACE: Final = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.EINVAL,
    errno.ENOENT,
)


def sync_folder(folder: Path) -> None:
    """Sync the list of files in ``folder``, so that a new or renamed one survives a crash."""
    stream = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(stream)
    finally:
        os.close(stream)


def special_kind(mode: int) -> str | None:
    """Return the kind of a special file with this mode; None for an ordinary file."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a disk",
    }
    return kinds.get(stat.S_IFMT(mode))


def regular_status(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of an ordinary file; reading a special one, an OSError, might never end."""
    return _require_regular(os.stat(path))


def _require_regular(status: os.stat_result) -> os.stat_result:
    if (kind := special_kind(status.st_mode)) is not None:
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, f"it is {kind}, not a file")
    return status


def _open_readable(path: str, flags: int) -> int:
    """Open a file without waiting, in case it has become a pipe since its status was read."""
    stream = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(stream, True)
    return stream


def read_file(path: str | os.PathLike[str], limit: int, *, pipes: bool = False) -> bytes:
    """Read all of an ordinary file of at most ``limit`` bytes, or of a nameless pipe if ``pipes``.

    Raises OSError: the file is of another kind, missing, unreadable, or longer.
    """
    path = Path(path)
    piped = pipes and _is_pipe(path)
    size = limit if piped else regular_status(path).st_size
    # The kernel's own files have size 0, and some of them never end.
    if size == 0:
        return b""
    pieces, got = [], 0
    if size <= limit:
        # If the size is known, all is read at once: a single piece is not even copied.
        most = _PIECE if piped else max(_PIECE, size + 1)
        with open(path, "rb", buffering=0, opener=_open_readable) as file:
            if not piped:
                _require_regular(os.fstat(file.fileno()))
            while got <= limit and (piece := file.read(most)):
                pieces.append(piece)
                got += len(piece)
    if max(got, size) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit / 1e6:.0f} MB")
    return b"".join(pieces)


def check_destination(
    path: str | os.PathLike[str] | None,
    option: str = "-o",
    others: Iterable[str | os.PathLike[str] | None] = (),
) -> None:
    """Check that a file can be written at ``path``, before spending minutes on its content."""
    if path is None:
        return
    path = Path(path)
    refuse_overwriting(path, option, others)
    try:
        if _is_stream(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        fd, name = _create(link_target(path).parent, 0o600)
        os.close(fd)
        if name is not None:
            os.unlink(name)
    except OSError as error:
        raise _write_error(path, error, 0, option) from error


def refuse_overwriting(
    path: str | os.PathLike[str], option: str, others: Iterable[str | os.PathLike[str] | None]
) -> None:
    """Refuse, by a UsageError, to overwrite files of a command, or a model's weights beside them.

    A str among ``others`` may also be the name of a network; it counts if there is such a file.
    """
    for other in (each for each in others if each is not None):
        if isinstance(other, str) and not os.path.exists(other):
            continue
        weights = weight_files(other) if os.path.isfile(path) else ()
        for file in (other, *weights):
            if _is_same(path, file):
                raise UsageError(
                    f"cannot write {path}: {file} would be written over; choose another {option}"
                )


@contextmanager
def replacing(
    path: Path, size: int = 0, *, executable: bool = False, lasting: bool = True, option: str = "-o"
) -> Iterator[BinaryIO]:
    """Open a new file. On success it is synced and replaces the file at ``path``.

    A file that replaces another one takes its mode: see `replacement`. Until it is complete, it has
    no name, so that a killed process leaves nothing, unless SIGKILL comes between the calls that
    name it and put it in place, or the file system needs names: then `UNFINISHED` matches it.

    `path`: the destination. A device or a pipe is written to directly, and keeps what was written
    if that fails. `lasting`: whether to sync it, which a file that is deleted again need not.
    Raises UsageError: the folder is not writable, or ``path`` is a folder, a disk or a socket;
    ArtifactError: the disk is full or fails; BrokenPipeError: a pipe's reader goes away.
    """
    try:
        if _is_stream(path):
            with open(_open_stream(path), "wb") as file:
                yield file
            return
        mode = 0o777 if executable else 0o666
        inherits = not executable  # a file there that is no code may lack the right to execute
        target = link_target(path)
        with replacement(target, mode, lasting=lasting, inherits=inherits) as file:
            yield file
    except (BrokenPipeError, NeoCPUError):  # some of ours are an OSError too
        raise
    except OSError as error:
        raise _write_error(path, error, size, option) from error


def write_in_huge_pages(file: BinaryIO, parts: Iterable[bytes | memoryview]) -> None:
    """Write a new file from its start so that the page cache can keep it in huge pages.

    Linux caches a write in pages of its size, if its offset is a multiple of that size. Weights in
    huge pages need one address translation instead of 512: a call of ResNet-50 takes 7 % less time.
    """
    page = bytearray(HUGE_PAGE)
    filled = 0
    for part in parts:
        rest = memoryview(part)
        while rest:
            taken, rest = rest[: HUGE_PAGE - filled], rest[HUGE_PAGE - filled :]
            page[filled : filled + len(taken)] = taken
            filled = (filled + len(taken)) % HUGE_PAGE
            if filled == 0:
                file.write(page)
    file.write(page[:filled])


def move(source: Path, path: Path, option: str = "-o") -> bool:
    """Sync a file and move it to ``path`` as `replacing` does, if that needs no copy of it.

    `source`: a file of this process only. Returns whether it was moved: it is not if ``path`` is on
    another disk, a device, a pipe, or in a folder that gives files another group.
    """
    try:
        if _is_stream(path):
            return False
        target = link_target(path)
        folder = os.stat(target.parent)
        if folder.st_dev != os.stat(source).st_dev or folder.st_mode & stat.S_ISGID:
            return False
        with open(source, "rb") as file:
            _keep_mode(file.fileno(), target)
            os.fsync(file.fileno())
        os.replace(source, target)
        sync_folder(target.parent)
        return True
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise _write_error(path, error, 0, option) from error


@contextmanager
def replacement(
    path: Path, mode: int = 0o666, *, lasting: bool = True, inherits: bool = True
) -> Iterator[BinaryIO]:
    """Open a new file that is put at ``path`` on success, as `replacing` does for ordinary files.

    If ``inherits``, it takes the mode, owner and group of the file that it replaces, if that is
    this user's, or the folder owner's where nobody else may write: any other file may be a trap. If
    ``path`` is a link, the link itself is replaced.
    """
    fd, name = _create(path.parent, mode)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            if inherits:
                _keep_mode(fd, path)
            if lasting:
                os.fsync(fd)
            if name is None:
                # Only a named file can replace another. Assigned first: interruptions may come.
                name = _new_name(path.parent)
                # Only with a descriptor does Python call linkat, which can follow this link.
                os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=fd)
        os.replace(name, path)
        if lasting:
            sync_folder(path.parent)
    finally:
        if name is not None:
            with contextlib.suppress(FileNotFoundError):  # renamed, or never linked
                os.unlink(name)


def _create(folder: Path, mode: int) -> tuple[int, str | None]:
    """Return a descriptor of a new file in ``folder``, and its name if it needs one."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode), None
    except OSError as error:
        if error.errno not in _NO_ANONYMOUS_FILES:
            raise
    name = _new_name(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, mode), name


def _new_name(folder: Path) -> str:
    return str(folder / f".neocpu-{secrets.token_hex(8)}")


def _is_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether both are one file, or will be once it is made. Devices and pipes never are."""
    try:
        found, known = os.stat(one), os.stat(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
    is_stream = stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode)
    return not is_stream and os.path.samestat(found, known)


def _is_pipe(path: Path) -> bool:
    """Whether a path is a pipe without a name, as ``/dev/stdin`` may be."""
    return stat.S_ISFIFO(os.stat(path).st_mode) and not os.path.exists(os.path.realpath(path))


def _is_stream(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    if (kind := special_kind(mode)) is not None:
        raise OSError(errno.EISDIR, f"it is {kind}")
    return False


def _open_stream(path: Path) -> int:
    """Open a device or a pipe for writing, and wait `PIPE_PATIENCE` at most for a reader."""
    end = time.monotonic() + PIPE_PATIENCE
    while True:
        try:
            stream = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "nobody reads from it") from None
        time.sleep(0.01)
    if stat.S_ISREG(os.fstat(stream).st_mode):
        os.close(stream)
        raise OSError(errno.EINVAL, "it has just been replaced")
    os.set_blocking(stream, True)
    return stream


def link_target(path: Path) -> Path:
    """Return the target of a link, which need not exist, or else ``path`` itself.

    Raises OSError: another user may have planted it, by Linux's rule (``fs.protected_symlinks``).
    """
    if not path.is_symlink():
        return path
    link, folder = os.lstat(path), os.stat(path.parent)
    shared = stat.S_ISVTX | stat.S_IWOTH
    trusted = link.st_uid in (os.geteuid(), folder.st_uid)
    if folder.st_mode & shared == shared and not trusted:
        raise OSError(errno.EACCES, "it is a link that another user has put there")
    return Path(os.path.realpath(path))


def _keep_mode(stream: int, path: Path) -> None:
    """Give a new file the mode and owners of a trusted file that it replaces: see `replacement`."""
    try:
        old, folder = os.lstat(path), os.stat(path.parent)
    except FileNotFoundError:
        return
    others = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    own = old.st_uid == os.geteuid() or (old.st_uid == folder.st_uid and not others)
    if not stat.S_ISREG(old.st_mode) or not own:
        return
    with contextlib.suppress(PermissionError):
        os.fchown(stream, old.st_uid, old.st_gid)
    os.fchmod(stream, stat.S_IMODE(old.st_mode) & 0o777)


def _write_error(path: Path, error: OSError, size: int, option: str) -> UsageError | ArtifactError:
    place = f"cannot write {path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        needed = f" ({size / 1e6:.1f} MB needed)" if size else ""
        return ArtifactError(
            f"{place}: {error.strerror}{needed}; free space or choose another {option}"
        )
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        return MissingFileError(
            f"{place}: there is no folder {path.parent}; create it or change {option}"
        )
    if error.errno in _WRONG_PLACE:
        return UsageError(f"{place}: {error.strerror}; choose another {option}")
    return ArtifactError(f"{place}: {error.strerror}")
