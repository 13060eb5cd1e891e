"""A cache of bytes by key, in a folder of this user, from one process to the next.

Nothing depends on it: an entry that cannot be kept or read is made again. An entry appears whole or
not at all, with its own digest, so that a damaged one is not used. Nor is a folder that others can
write to: they could make this user run any code.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import time
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.files import UNFINISHED, read_file, replacing

logger = logging.getLogger(__name__)

_DIGEST: Final = hashlib.sha256().digest_size
_OURS: Final = re.compile(rf"[0-9a-f]{{{2 * _DIGEST}}}|{UNFINISHED}")
"""Names of entries, and of unfinished ones that a killed process left."""
_MOST: Final = 1 << 28
"""The most bytes of an entry. We write no larger ones."""
_NEWER: Final = 3600.0
"""Seconds after which a read updates an entry's time of use, so that hardly any read writes."""
_KEPT: Final = 0.75
"""The share of its bound that a folder is trimmed to, so that trimming is rare."""


class FileCache:
    """A folder of entries, which is made with the first entry. Other files there are left alone.

    `limit`: the most bytes of all entries. The least recently used are deleted first.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self._limit = limit
        self._usable: bool | None = None
        self._writable = True
        self._written = False

    def path(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the entry of ``key``; None if there is none, or it is damaged."""
        path = self.path(key)
        if not self._is_usable():
            return None
        try:
            data = read_file(path, _MOST)
            if time.time() - path.stat().st_mtime > _NEWER:
                with contextlib.suppress(OSError):  # a read-only disk
                    os.utime(path)
        except OSError:  # most often: not there
            return None
        content = data[_DIGEST:]
        if hashlib.sha256(key.encode() + content).digest() != data[:_DIGEST]:
            logger.warning("%s is damaged, and made again", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep ``content`` under ``key`` if possible; if not, log the reason once."""
        if not self._writable or not self._is_usable(create=True):
            return
        digest = hashlib.sha256(key.encode() + content).digest()
        try:
            with replacing(self.path(key), lasting=False) as file:
                file.write(digest + content)
            self._written = True
        except (NeoCPUError, OSError) as error:
            self._writable = False
            logger.warning("nothing is kept for the next time: %s", str(error).partition(";")[0])

    def trim(self) -> None:
        """Delete the least recently used entries above the bound, if this object wrote any."""
        if not self._written:
            return
        self._written = False
        entries = self._entries()
        excess = sum(status.st_size for _, status in entries) - self._limit
        if excess <= 0:
            return
        excess += int((1 - _KEPT) * self._limit)
        for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime):
            with contextlib.suppress(OSError):  # another process was first
                path.unlink()
            excess -= status.st_size
            if excess <= 0:
                break

    def size(self) -> tuple[int, int]:
        """Return the number of entries, and their bytes."""
        entries = self._entries()
        return len(entries), sum(status.st_size for _, status in entries)

    def obstacle(self) -> str | None:
        """Return why the folder is not used; None if it is used, or does not exist yet."""
        try:
            status = os.stat(self.folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.strerror or str(error)
        if not stat.S_ISDIR(status.st_mode):
            return "it is no folder"
        if status.st_uid != os.geteuid():
            return "it belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "others may write to it (chmod go-w)"
        for parent in self.folder.resolve().parents:
            above = os.stat(parent)
            shared = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            is_open = bool(shared) and not above.st_mode & stat.S_ISVTX
            if is_open or above.st_uid not in (0, os.geteuid()):
                return f"others may put another in its place: they may write to {parent}"
        return None

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # deleted meanwhile
                    if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return found

    def _is_usable(self, *, create: bool = False) -> bool:
        """Whether the folder exists (or is made) and only this user can write to it."""
        if self._usable is None and create:
            try:
                _make(self.folder)
            except OSError as error:
                self._writable = False
                logger.warning(
                    "nothing is kept for the next time: cannot make the folder %s: %s",
                    self.folder,
                    error.strerror,
                )
                return False
        if self._usable is None and (create or os.path.exists(self.folder)):
            reason = self.obstacle()
            self._usable = reason is None
            if reason is not None:
                logger.warning("%s is not used: %s", self.folder, reason)
        return bool(self._usable)


def _make(folder: Path) -> None:
    """Make a folder and those above it, for this user only."""
    if not folder.exists():
        if folder.parent != folder:
            _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
