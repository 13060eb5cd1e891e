"""Many processes append to one file while some are killed: acknowledged records are kept."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import needs
import pytest
from tuning_records import WORKLOAD, open_store, record

from neocpu.tuning_db.merge import merge
from neocpu.tuning_db.record import Record
from neocpu.tuning_db.record_file import locked
from neocpu.tuning_db.selection import PruneRules, prune

FORK = multiprocessing.get_context("fork")


def numbered(writer: int, number: int) -> Record:
    """Return a record whose workload, scheme and seconds identify it."""
    workload = dataclasses.replace(WORKLOAD, batch=writer + 1)
    made = record(1e-6 * (1000 * writer + number + 1), reg_n=number + 1)
    return dataclasses.replace(made, workload=workload)


def acknowledged(journal: Path) -> int:
    return len(journal.read_bytes().split()) if journal.exists() else 0


def write(database: Path, journal: Path, writer: int, count: int, batch: int) -> None:
    """Append records that this writer's journal lacks, and note each acknowledgement there."""
    store = open_store(database)
    stream = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for start in range(acknowledged(journal), count, batch):
        numbers = range(start, min(start + batch, count))
        store.append([numbered(writer, number) for number in numbers])
        os.write(stream, b"".join(b"%d\n" % number for number in numbers))


@dataclass
class Writers:
    """Processes that write; a killed one is replaced by a new one."""

    database: Path
    count: int
    processes: int
    batch: int = 1

    def __post_init__(self) -> None:
        self.running = [self._start(writer) for writer in range(self.processes)]

    def _journal(self, writer: int) -> Path:
        return self.database.with_name(f"journal{writer}")

    def _start(self, writer: int) -> multiprocessing.process.BaseProcess:
        arguments = (self.database, self._journal(writer), writer, self.count, self.batch)
        process = FORK.Process(target=write, args=arguments)
        process.start()
        return process

    def kill(self, generator: random.Random) -> int:
        """Kill a writer in the middle of a line, unless it is done, and restart it."""
        writer = generator.randrange(self.processes)
        process = self.running[writer]
        process.kill()
        process.join()
        if process.exitcode == 0:
            return 0
        # A signal seldom cuts the write itself short: that part is played here.
        line = numbered(writer, self.count).to_line().encode()
        with locked(self.database) as path, path.open("ab") as file:
            file.write(line[: generator.randrange(1, len(line) - 1)])
        self.running[writer] = self._start(writer)
        return 1

    @property
    def busy(self) -> bool:
        return any(process.is_alive() for process in self.running)

    def join(self) -> None:
        for process in self.running:
            process.join()
            assert process.exitcode == 0

    def check(self, kills: int) -> None:
        """Check that the file has every record, once except after kills, and nothing else."""
        assert [acknowledged(self._journal(w)) for w in range(self.processes)] == (
            [self.count] * self.processes
        )
        store = open_store(self.database)
        expected = {numbered(w, n) for w in range(self.processes) for n in range(self.count)}
        assert set(store) == expected
        assert bool(store.skipped) == bool(kills)
        assert len(store.skipped) <= 2 * kills
        assert self.database.read_bytes().count(b"\n") <= len(expected) + kills * (self.batch + 2)


@pytest.mark.parametrize(
    ("count", "pause"),
    [
        pytest.param(60, 0.05, id="small"),
        pytest.param(1000, 1.0, id="full", marks=[pytest.mark.slow, needs.everything()]),
    ],
)
def test_writers_killed_again_and_again_lose_nothing(tmp_path: Path, count: int, pause: float):
    generator = random.Random(0)
    writers = Writers(tmp_path / "records.jsonl", count, processes=8)
    kills = 0
    while writers.busy:
        # The first at once: on a fast machine a few records are written in no time.
        time.sleep(pause * generator.uniform(0.5, 1.5) if kills else 0.0)
        kills += writers.kill(generator)
    writers.join()
    writers.check(kills)
    assert kills


def test_batches_are_as_safe(tmp_path: Path):
    generator = random.Random(1)
    writers = Writers(tmp_path / "records.jsonl", 200, processes=4, batch=10)
    kills = 0
    while writers.busy:
        time.sleep(0.02)
        kills += writers.kill(generator)
    writers.join()
    writers.check(kills)


def test_pruning_under_writers_feet_loses_nothing(tmp_path: Path):
    database = tmp_path / "records.jsonl"
    database.touch()
    writers = Writers(database, 60, processes=4)
    pruned = 0
    while writers.busy:
        prune(database, PruneRules(lambda name: 3, lambda record: True))
        pruned += 1
    writers.join()
    writers.check(0)
    assert pruned > 1


def prune_and_merge(database: Path, source: Path) -> None:
    while True:
        merge(database, [source])
        prune(database, PruneRules(lambda name: 3, lambda record: record.scheme.reg_n <= 20))


def test_a_killed_merge_or_prune_did_all_or_nothing(tmp_path: Path):
    generator = random.Random(2)
    database, source = tmp_path / "records.jsonl", tmp_path / "source.jsonl"
    kept, merged = (
        [numbered(writer, number) for writer in range(20) for number in numbers]
        for numbers in (range(20), range(20, 40))
    )
    open_store(database).append(kept)
    open_store(source).append(merged)
    for _ in range(12):
        process = FORK.Process(target=prune_and_merge, args=(database, source))
        process.start()
        time.sleep(generator.uniform(0.02, 0.2))
        process.kill()
        process.join()
        store = open_store(database)
        assert not store.skipped
        assert set(store) in (set(kept), {*kept, *merged})
