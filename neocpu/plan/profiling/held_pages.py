"""The pages of a loaded artifact that are in memory, and how large they are.

Both are read from ``/proc/PID/smaps``, the kernel's account of a process's memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.runtime.artifact import ArtifactFile

_HUGE: Final = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Private_Hugetlb")
_SIZE: Final = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A range of addresses, as ``/proc/PID/smaps`` describes it."""

    file: tuple[int, int]  # device and inode; zeros where the range maps no file
    # The bytes of the file.
    start: int
    size: int
    resident: int  # the bytes that are in memory
    huge: int  # the bytes that are in huge pages
    wants_huge: bool  # whether the process asked for huge pages

    def holds(self, file: tuple[int, int], part: range) -> bool:
        """Return whether bytes of a part of a file are mapped here."""
        return self.file == file and self.start < part.stop and part.start < self.start + self.size


def resident_pages(artifact: str, arena_bytes: int) -> JsonObject:
    """Return how much of an artifact's weights and arena is in this process's memory.

    The process must have run the artifact.

    Returns: ``"weights"`` and ``"arena"``, each with its ``"mapped"``, ``"resident"`` and
        ``"huge"`` bytes; huge ones are in huge pages. A part that looks like other memory is
        missing.
    """
    try:
        mappings = parse_smaps(Path("/proc/self/smaps").read_text())
    except (OSError, ValueError, LookupError):
        return {}  # a kernel without them
    file, weights = _weights_in(Path(artifact))
    # The arena asks for huge pages. Little else does, and nothing else has its size.
    arenas = [
        one
        for one in mappings
        if one.wants_huge and not any(one.file) and one.size >= arena_bytes > 0
    ]
    found = {
        "weights": [one for one in mappings if weights and one.holds(file, weights)],
        "arena": sorted(arenas, key=lambda one: one.size)[:1],
    }
    return {name: _sums(some) for name, some in found.items() if some}


def parse_smaps(text: str) -> tuple[Mapping, ...]:
    """Return every range that a ``/proc/PID/smaps`` lists."""
    found = []
    for block in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)[1:]:
        head, _, rest = block.partition("\n")
        addresses, _, offset, device, inode, *_ = head.split()
        start, end = (int(word, 16) for word in addresses.split("-"))
        major, minor = (int(word, 16) for word in device.split(":"))
        sizes = {name: int(size) << 10 for name, size in _SIZE.findall(rest)}
        found.append(
            Mapping(
                file=(os.makedev(major, minor), int(inode)),
                start=int(offset, 16),
                size=end - start,
                resident=sizes["Rss"],
                huge=sum(size for name, size in sizes.items() if name in _HUGE),
                wants_huge=" hg" in rest,
            )
        )
    return tuple(found)


def _weights_in(artifact: Path) -> tuple[tuple[int, int], range]:
    """Return a file's device and inode, and the range of its bytes that holds its weights."""
    opened = ArtifactFile(artifact)
    loaded = opened.loadable or opened.variants[0]
    start = loaded.offset + loaded.code_bytes
    status = os.fstat(opened.fd)
    return (status.st_dev, status.st_ino), range(start, start + loaded.weight_bytes)


def _sums(mappings: list[Mapping]) -> dict[str, int]:
    return {
        "mapped": sum(one.size for one in mappings),
        "resident": sum(one.resident for one in mappings),
        "huge": sum(one.huge for one in mappings),
    }
