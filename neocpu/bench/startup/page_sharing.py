"""How much memory processes that run the same artifact have in common: what the kernel counts."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.python_child import program_command
from neocpu.runtime.artifact import ArtifactFile

PROCESSES: Final = 2

# Runs once, so that all pages are there, and lives until its standard input ends.
_PROGRAM: Final = """
import sys
from neocpu import load
with load(sys.argv[1], int(sys.argv[2])) as module:
    module.warmup(1)
    print("ready", flush=True)
    sys.stdin.read()
"""

_HUGE: Final = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Private_Hugetlb")
_SIZE: Final = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """A part of a process's memory, in bytes.

    Attributes
    ----------
    resident : int
        What is in memory.
    shared : int
        What of it other processes have mapped too.
    """

    resident: int
    shared: int

    @property
    def share(self) -> float:
        """How much of what is resident is shared; 1 where nothing is."""
        return self.shared / self.resident if self.resident else 1.0


@dataclass(frozen=True, slots=True)
class SharingReport:
    """What `PROCESSES` processes that run one artifact hold, each.

    Attributes
    ----------
    weights : tuple of Memory
        The mapping of the artifact that holds the weights.
    total : tuple of Memory
        Everything.
    """

    weights: tuple[Memory, ...]
    total: tuple[Memory, ...]

    @property
    def share(self) -> float:
        """The smallest share of a process's weights that it has in common with another."""
        return min(memory.share for memory in self.weights)

    @property
    def own_bytes(self) -> int:
        """What one more process takes: the most that one has for itself."""
        return max(memory.resident - memory.shared for memory in self.total)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"share": self.share, "own_bytes": self.own_bytes, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of addresses, as ``/proc/PID/smaps`` describes it.

    Attributes
    ----------
    file : tuple of int
        Device and inode; zeros where the range is of no file.
    start, size : int
        The bytes of the file.
    memory : Memory
    huge : int
        Bytes of it that are in huge pages.
    wants_huge : bool
        Whether such were asked for.
    """

    file: tuple[int, int]
    start: int
    size: int
    memory: Memory
    huge: int = 0
    wants_huge: bool = False

    def holds(self, file: tuple[int, int], part: range) -> bool:
        """Return whether bytes of a part of a file are mapped here."""
        return self.file == file and self.start < part.stop and part.start < self.start + self.size


def measure_sharing(artifact: Path, threads: int) -> SharingReport:
    """Run an artifact in `PROCESSES` processes at once and read what they share.

    Raises
    ------
    ArtifactError
        If a process does not get as far as its first output.
    """
    file, weights = weights_in(artifact)
    with ExitStack() as stack:
        pids = [stack.enter_context(_running(artifact, threads)) for _ in range(PROCESSES)]
        found = [parse_smaps(Path(f"/proc/{pid}/smaps").read_text()) for pid in pids]
    held = tuple(_sum(one for one in maps if one.holds(file, weights)) for maps in found)
    if weights and not all(memory.resident for memory in held):
        raise ArtifactError(
            f"{artifact}: no process has its weights mapped under the file's device and inode, by "
            "which /proc/PID/smaps is read: copy it to a file system that is not an overlay"
        )
    return SharingReport(held, tuple(map(_sum, found)))


def weights_in(artifact: Path) -> tuple[tuple[int, int], range]:
    """Return a file's device and inode, and which of its bytes are the weights that run here."""
    opened = ArtifactFile(artifact)
    loaded = opened.loadable or opened.variants[0]
    start = loaded.offset + loaded.code_bytes
    status = os.fstat(opened.fd)
    return (status.st_dev, status.st_ino), range(start, start + loaded.weight_bytes)


def parse_smaps(text: str) -> tuple[Mapping, ...]:
    """Return what ``/proc/PID/smaps`` says of every range."""
    found = []
    for block in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)[1:]:
        head, _, rest = block.partition("\n")
        addresses, _, offset, device, inode, *_ = head.split()
        start, end = (int(word, 16) for word in addresses.split("-"))
        major, minor = (int(word, 16) for word in device.split(":"))
        sizes = {name: int(size) << 10 for name, size in _SIZE.findall(rest)}
        shared = sizes["Shared_Clean"] + sizes["Shared_Dirty"]
        file = (os.makedev(major, minor), int(inode))
        memory = Memory(sizes["Rss"], shared)
        huge = sum(size for name, size in sizes.items() if name in _HUGE)
        wanted = " hg" in rest
        found.append(Mapping(file, int(offset, 16), end - start, memory, huge, wanted))
    return tuple(found)


@contextmanager
def _running(artifact: Path, threads: int) -> Iterator[int]:
    """Yield the id of a process that has run ``artifact`` once and keeps it open."""
    command = program_command(_PROGRAM, artifact, threads)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                errors.seek(0)
                words = errors.read().decode(errors="replace").strip().splitlines()
                raise ArtifactError(f"{artifact} does not run: {words[-1] if words else 'no word'}")
            yield process.pid
        finally:
            process.kill()


def _sum(mappings: Iterable[Mapping]) -> Memory:
    memories = [mapping.memory for mapping in mappings]
    return Memory(sum(one.resident for one in memories), sum(one.shared for one in memories))
