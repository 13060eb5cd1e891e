"""Time how long shipped records take to read: python -m tests.tuning_db.reading_time.

It prints for each CPU the median (and the least) milliseconds to read the file and decode every
record, and to read it and find the records of one workload. Time in which other processes have the
CPU does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from neocpu.foundation.own_process import collect_rarely
from neocpu.tuning_db.packed import PackedRecords
from neocpu.tuning_db.record_file import read_packed
from neocpu.tuning_db.store import shipped_databases

REPEATS = 31


def milliseconds(work: Callable[[], object]) -> str:
    """The median of `REPEATS` calls, and the fastest."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        found = work()
        taken.append(1e3 * (time.process_time() - start))
        del found
    return f"{statistics.median(taken):.1f} ({min(taken):.1f})"


def report(path: Path) -> str:
    """One line about a file."""
    packed: PackedRecords = read_packed(path)
    workload, target = packed.workloads(packed.targets[0])[0], packed.targets[0]
    every = milliseconds(lambda: list(read_packed(path)))
    one = milliseconds(lambda: read_packed(path).find(workload, target))
    return f"{path.stem:16}{len(packed):6} records  all {every:>14}  one workload {one:>12}"


if __name__ == "__main__":
    collect_rarely()  # as commands do
    for shipped in shipped_databases():
        print(report(shipped))
