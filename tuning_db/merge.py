"""Merge record files, with the most informative record of each scheme, independently of dates. The
destination changes at once and under its lock: others may append, and none is left half done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from neocpu.tuning_db.record import Record
from neocpu.tuning_db.record_file import (
    Contents,
    OnRead,
    RecordLine,
    SkippedLine,
    Slot,
    locked,
    read_records,
    replace_contents,
    silent,
)
from neocpu.tuning_db.store import refuse_shipped


@dataclass(frozen=True, slots=True)
class MergedFile:
    """The records that `merge` took of one file."""

    path: Path
    records: int  # number of records in it, one per scheme, workload and target
    # `added`, `improved`: numbers of records taken for new schemes, and in place of poorer records.
    added: int
    improved: int
    skipped: tuple[SkippedLine, ...]  # lines that are no records, which were left out


def merge(
    destination: Path, sources: Sequence[Path], *, on_read: OnRead = silent
) -> tuple[MergedFile, ...]:
    """Add to ``destination`` what ``sources`` know better, and say what was taken of each.

    In one file the later line counts. Of two files' records of one scheme, a failure counts: a
    wrong answer must not come back because another machine never looked. Then the one with more
    repeats, then the one with the later time. The order of the files does not matter but for equal
    ones. Lines of ``destination`` stay as they are; `prune` drops those that were superseded.
    Raises UsageError if ``destination`` is a shipped database. Raises DatabaseError if a file
    cannot be read or written; ``destination`` is then as it was.
    """
    refuse_shipped(destination)
    read = [read_records(path, on_read) for path in sources]
    with locked(destination) as real:
        present = read_records(destination, on_read) if real.exists() else None
        own = present.winners() if present is not None else {}
        taken = _better(own, read)
        if taken or present is None:
            data = present.data if present is not None else b""
            end = b"\n" if data and not data.endswith(b"\n") else b""
            added = b"".join(entry.text.strip() + b"\n" for _, entry in taken.values())
            replace_contents(real, data + end + added)
    every = Counter(index for index, _ in taken.values())
    improved = Counter(index for slot, (index, _) in taken.items() if slot in own)
    return tuple(
        MergedFile(
            contents.path,
            len(contents.winners()),
            every[index] - improved[index],
            improved[index],
            contents.skipped,
        )
        for index, contents in enumerate(read)
    )


def _better(
    own: Mapping[Slot, RecordLine], read: Sequence[Contents]
) -> dict[Slot, tuple[int, RecordLine]]:
    """Return the entries that beat all others and ``own``, each with the index of its file."""
    best = dict(own)
    taken: dict[Slot, tuple[int, RecordLine]] = {}
    for index, contents in enumerate(read):
        for slot, entry in contents.winners().items():
            if slot not in best or _standing(entry.record) > _standing(best[slot].record):
                best[slot] = entry
                taken[slot] = (index, entry)
    return taken


def _standing(record: Record) -> tuple[bool, int, str]:
    return record.result.error is not None, len(record.result.seconds), record.time
