"""Choose records, in an order of their own: what a file to ship is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from neocpu.tuning_db.record import Record, Workload


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records to export; an empty collection admits all.

    Attributes
    ----------
    cpus : collection of str
        LLVM's names.
    threads : collection of int
    workloads : collection or None
        None admits all.
    best : int or None
        Schemes of each workload and target, the fastest, without failures; None for all.
    """

    cpus: Collection[str] = ()
    threads: Collection[int] = ()
    workloads: Collection[Workload] | None = None
    best: int | None = None

    def admits(self, record: Record) -> bool:
        """Whether ``record`` is of the CPUs, thread counts and workloads chosen."""
        return (
            (not self.cpus or record.target.mcpu in self.cpus)
            and (not self.threads or record.target.threads in self.threads)
            and (self.workloads is None or record.workload in self.workloads)
        )


def select(records: Iterable[Record], selection: Selection) -> list[Record]:
    """Return the records of ``selection`` in canonical order.

    By CPU, threads, workload and scheme: equal records make equal files, whatever their order was.
    """
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if selection.admits(record):
            groups[record.key()].append(record)
    chosen: list[Record] = []
    for group in groups.values():
        if selection.best is not None:
            usable = [record for record in group if record.result.error is None]
            usable.sort(key=lambda record: (record.result.best, str(record.scheme)))
            group = usable[: selection.best]
        chosen += group
    return sorted(chosen, key=lambda record: (record.target, record.to_line()))
