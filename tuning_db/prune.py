"""Prune a record file: drop the lines that count for nothing, at once and under the lock.

Others may go on appending meanwhile, and a killed command leaves the file as it was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from neocpu.tuning_db.record import Record, TargetKey, Workload
from neocpu.tuning_db.record_file import (
    Contents,
    OnRead,
    RecordLine,
    SkippedLine,
    locked,
    read_database,
    read_records,
    replace_contents,
    silent,
)
from neocpu.tuning_db.selection import fastest
from neocpu.tuning_db.store import refuse_shipped


@dataclass(frozen=True, slots=True)
class PruneRules:
    """The lines that `prune` drops besides torn and superseded ones."""

    # Template name to its current version. Records of an earlier one are dropped; those of a later
    # one are another neocpu's.
    template_version: Callable[[str], int]
    fits: Callable[[Record], bool]  # whether a record's scheme is one for its workload at all
    # Number of `fastest` schemes of each workload and target to keep; None keeps all.
    keep_best: int | None = None
    failed: bool = False  # whether to drop failures; they are then measured again


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """The work that `prune` did or would do."""

    path: Path
    kept: int
    foreign: int  # lines kept that another version of neocpu may read
    # Lines dropped, by reason: ``torn``, ``superseded``, ``stale`` (of an earlier template),
    # ``unfit``, ``failed`` or ``slower``.
    dropped: Counter[str]
    # `bytes_before`, `bytes_after`: size of the file.
    bytes_before: int
    bytes_after: int


def prune(
    path: Path, rules: PruneRules, *, dry_run: bool = False, on_read: OnRead = silent
) -> PruneReport:
    """Drop what ``rules`` say from ``path``; the lines that stay keep their order and their bytes.
    Raises UsageError if ``path`` is a shipped database. Raises DatabaseError if it cannot be read
    or written; it is then as it was.
    """
    refuse_shipped(path)
    contents = read_records(path, on_read)
    if dry_run:
        return _sift(contents, rules)[1]
    with locked(path) as real:
        if read_database(real) != contents.data:  # others appended meanwhile
            contents = read_records(path, on_read)
        data, report = _sift(contents, rules)
        if data != contents.data:
            replace_contents(real, data)
    return report


def _sift(contents: Contents, rules: PruneRules) -> tuple[bytes, PruneReport]:
    reasons = _reasons(contents, rules)
    foreign = [entry for entry in contents.skipped if entry.foreign]
    records = [entry for entry in contents.lines if entry.line not in reasons]
    kept: list[RecordLine | SkippedLine] = sorted([*records, *foreign], key=attrgetter("line"))
    data = b"".join(entry.text + b"\n" for entry in kept)
    dropped = Counter(reasons.values())
    dropped["torn"] = len(contents.skipped) - len(foreign)
    report = PruneReport(
        path=contents.path,
        kept=len(records),
        foreign=len(foreign),
        dropped=+dropped,
        bytes_before=len(contents.data),
        bytes_after=len(data),
    )
    return data, report


def _reasons(contents: Contents, rules: PruneRules) -> dict[int, str]:
    """Return the reasons for which lines are dropped, by their number."""
    last = contents.winners()
    reasons: dict[int, str] = {}
    usable: defaultdict[tuple[Workload, TargetKey], list[RecordLine]] = defaultdict(list)
    for entry in contents.lines:
        version = rules.template_version(entry.record.scheme.template)
        if last[entry.slot] is not entry:
            reasons[entry.line] = "superseded"
        elif entry.record.env.template_version < version:
            reasons[entry.line] = "stale"
        elif entry.record.env.template_version > version:
            continue
        elif not rules.fits(entry.record):
            reasons[entry.line] = "unfit"
        elif entry.record.result.error is None:
            usable[entry.record.workload, entry.record.target].append(entry)
        elif rules.failed:
            reasons[entry.line] = "failed"
    if rules.keep_best is not None:
        for group in usable.values():
            kept = {
                record.scheme
                for record in fastest((entry.record for entry in group), rules.keep_best)
            }
            reasons |= {entry.line: "slower" for entry in group if entry.record.scheme not in kept}
    return reasons
