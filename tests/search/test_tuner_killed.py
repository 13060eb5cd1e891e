"""``kill -9`` at random moments loses only measurements in flight, and repeats none."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import fake_builder as fake
import pytest
from fake_builder import TARGET, open_store
from test_tuner import TASKS, run
from waiting import wait_until

from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.search.measuring.local_measurer import LocalMeasurer
from neocpu.search.tuning_state import SearchSpace

KILLS = 10
# A good candidate notes its `reg_n` when it is timed. None is so near to another that they would be
# timed again.
SCHEMES = [NchwScheme(fake.GOOD, 1000 + 40 * i) for i in range(120)]
SPACE = SearchSpace(
    schemes=lambda workload: SCHEMES,
    estimate=lambda workload, scheme: scheme.reg_n * 1e-6,
    template_version=lambda name: 1,
)


class SlowBuilder(fake.FakeBuilder):
    """A builder that is slow for each candidate."""

    def time(self, *arguments):
        time.sleep(0.01)
        return super().time(*arguments)


def tuning(database: Path) -> None:
    with LocalMeasurer(TARGET, 1, children=1, builder="test_tuner_killed:SlowBuilder") as measurer:
        run(open_store(database), measurer, TASKS[:1], space=SPACE)


def timed(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_killed_at_ten_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database, log = tmp_path / "records.jsonl", tmp_path / "log"
    monkeypatch.setenv(fake.LOG, str(log))
    moments = random.Random(4)
    known: set[int] = set()
    for kill in range(KILLS + 1):
        before = len(timed(log))
        process = multiprocessing.get_context("fork").Process(target=tuning, args=(database,))
        process.start()
        if kill < KILLS:
            wait_until(lambda: len(timed(log)) > before or not process.is_alive())  # noqa: B023
            assert process.is_alive()
            time.sleep(moments.uniform(0.0, 0.15))
            process.kill()
        process.join()
        tried = timed(log)[before:]
        assert len(tried) == len(set(tried))
        assert known.isdisjoint(tried)
        store = open_store(database)
        assert store.skipped == ()
        recorded = {record.scheme.reg_n for record in store}
        assert known <= recorded <= known | set(tried)
        assert len(set(tried) - recorded) <= (kill < KILLS)  # what was in flight
        known = recorded
    assert process.exitcode == 0
    assert known == {scheme.reg_n for scheme in SCHEMES}
