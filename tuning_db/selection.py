"""Choose records, in an order of their own: what a file to ship is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from neocpu.tuning_db.record import Record, TargetKey, Workload


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to export; an empty collection admits all."""

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
    """Return the records of ``selection`` in canonical order.

    The order is by CPU, threads, workload and scheme, so that equal records make equal files.
    """
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
    """Return a workload's ``count`` fastest records, and the fastest between each pair of layouts.

    The global search chooses among pairs of layouts, so it misses any that is left out.
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
