"""Counts of the records in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neocpu.tuning_db.record_file import Contents, RecordLine


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """The records of one CPU, thread count and template in one file."""

    mcpu: str
    threads: int
    template: str
    # `workloads`, `records`: distinct workloads, and the records of their schemes, superseded ones
    # left out.
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
        """Records of all groups."""
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
