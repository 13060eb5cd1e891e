"""Choose records, to ship them or to keep them in their file, which is pruned at once and under its
lock: others may append, and a killed command leaves it as it was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
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
from neocpu.tuning_db.store import refuse_shipped


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to export. Empty ``cpus`` or ``threads`` admit all."""

    cpus: Collection[str] = ()  # LLVM's names
    threads: Collection[int] = ()
    workloads: Collection[Workload] | None = None  # None admits all
    best: int | None = None  # `fastest` schemes of each workload and target alone; None for all

    def admits(self, record: Record) -> bool:
        """Whether ``record`` is of the CPUs, thread counts and workloads chosen."""
        return (
            (not self.cpus or record.target.mcpu in self.cpus)
            and (not self.threads or record.target.threads in self.threads)
            and (self.workloads is None or record.workload in self.workloads)
        )


def select(records: Iterable[Record], selection: Selection) -> list[Record]:
    """Return ``selection``'s records by CPU, threads, workload and scheme, a canonical order."""
    groups: defaultdict[tuple[Workload, TargetKey], list[Record]] = defaultdict(list)
    for record in records:
        if selection.admits(record):
            groups[record.workload, record.target].append(record)
    chosen: list[Record] = []
    for group in groups.values():
        if selection.best is not None:
            group = fastest(group, selection.best)
        chosen += group
    return sorted(chosen, key=lambda record: (record.target, record.to_line()))


def fastest(records: Iterable[Record], count: int) -> list[Record]:
    """Return a workload's ``count`` fastest records, and the fastest between each pair of layouts,
    which the global search chooses among.
    """
    usable = [record for record in records if record.result.error is None]
    usable.sort(key=lambda record: (record.result.best, str(record.scheme)))
    if len(usable) <= count:  # also where there is but one scheme, which has no layouts
        return usable
    kept, seen = [], set()
    for place, record in enumerate(usable):
        layouts = (record.scheme.in_layout, record.scheme.out_layout)
        if place < count or layouts not in seen:
            kept.append(record)
        seen.add(layouts)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """The records of one CPU, thread count and template in one file."""

    mcpu: str
    threads: int
    template: str
    # `workloads`, `records`: distinct ones, and their schemes' records, none superseded.
    workloads: int
    records: int
    failed: int  # records of schemes that did not work
    stale: int  # records of another version of the template, which are not used


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """One file: bytes, records by group, lines that a later one supersedes, and lines skipped."""

    size: int
    groups: tuple[GroupStatistics, ...]
    superseded: int
    skipped: int

    @property
    def records(self) -> int:
        return sum(group.records for group in self.groups)


def file_statistics(contents: Contents, template_version: Callable[[str], int]) -> FileStatistics:
    """Count what a file holds; ``template_version`` gives the current one of a template."""
    winners = contents.winners()
    groups: dict[tuple[str, int, str], list[RecordLine]] = {}
    for entry in winners.values():
        target, template = entry.record.target, entry.record.scheme.template
        groups.setdefault((target.mcpu, target.threads, template), []).append(entry)
    return FileStatistics(
        len(contents.data),
        tuple(
            _group_statistics(
                mcpu, threads, template, groups[mcpu, threads, template], template_version(template)
            )
            for mcpu, threads, template in sorted(groups)
        ),
        len(contents.lines) - len(winners),
        len(contents.skipped),
    )


def _group_statistics(
    mcpu: str, threads: int, template: str, entries: Sequence[RecordLine], version: int
) -> GroupStatistics:
    return GroupStatistics(
        mcpu=mcpu,
        threads=threads,
        template=template,
        workloads=len({entry.record.workload for entry in entries}),
        records=len(entries),
        failed=sum(entry.record.result.error is not None for entry in entries),
        stale=sum(entry.record.env.template_version != version for entry in entries),
    )


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
    """Drop what ``rules`` say from ``path``; the other lines keep their order and their bytes.

    Raises UsageError if ``path`` is a shipped database, DatabaseError if it fails and is as it was.
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
