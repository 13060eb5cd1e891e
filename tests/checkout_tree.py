"""A list of the files in a checkout, which shows that tests leave nothing there."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import CodeType
from typing import Final

#: Paths that others may write in the checkout while tests run (`make types`, git, pip).
ELSEWHERE: Final = frozenset({".git", ".venv", "build"})
#: Names in any folder: caches of Python, test tools and linters, and editors' own files.
CACHES: Final = (
    *("__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache"),
    *(".*.sw?", ".#*", "*~"),
)
#: Bytes before the code in a file of bytecode.
_PYC_HEADER: Final = 16


def snapshot(root: Path) -> dict[str, str]:
    """Return the mode and contents, as a digest, of every file and folder that is no cache."""
    return {entry.path: _contents(entry) for entry in _entries(root, root)}


def _entries(root: Path, folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if any(fnmatch(entry.name, cache) for cache in CACHES):
                continue
            if folder == root and entry.name in ELSEWHERE:
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(root, Path(entry))


def _contents(entry: os.DirEntry[str]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return f"{mode:o} {os.readlink(entry.path)}"
        if stat.S_ISREG(mode):
            return f"{mode:o} {hashlib.sha256(Path(entry).read_bytes()).hexdigest()}"
    except OSError as error:  # of another user, or gone since it was listed
        return str(error.errno)
    return f"{mode:o}"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each file or folder that came, went or changed between two snapshots."""
    changed = (path for path in before.keys() & after.keys() if before[path] != after[path])
    return [
        *(f"came:    {path}" for path in sorted(after.keys() - before.keys())),
        *(f"went:    {path}" for path in sorted(before.keys() - after.keys())),
        *(f"changed: {path}" for path in sorted(changed)),
    ]


def broken_bytecode(root: Path) -> list[str]:
    """Return a line for each file of this Python's bytecode that it cannot read.

    Python reads such a file whenever the module is imported, and fails.
    """
    found = []
    for folder, folders, _ in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in ELSEWHERE]
        cached = Path(folder, "__pycache__").glob(f"*.{sys.implementation.cache_tag}*.pyc")
        found += [f"broken:  {path}" for path in sorted(cached) if not _is_whole(path)]
    return found


def _is_whole(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # replaced or cleared by another process
        return True
    if len(data) >= _PYC_HEADER and not data.startswith(importlib.util.MAGIC_NUMBER):
        return True  # bytecode of another Python, which this one overwrites
    try:
        return isinstance(marshal.loads(data[_PYC_HEADER:]), CodeType)
    except (EOFError, ValueError, TypeError):
        return False
