"""Machines of many cores: what they share, and files that describe others."""

import json
import os
from dataclasses import asdict, replace

import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.machine.machines import MACHINES, find_machine

ZEN4 = MACHINES["znver4"]


def test_cores_share_caches_and_memory():
    assert [ZEN4.caches(cores) for cores in (1, 8, 9, 64)] == [1, 1, 2, 8]
    assert ZEN4.memory_rate(1) == ZEN4.memory_core
    assert ZEN4.memory_rate(8) == ZEN4.memory_l3
    assert ZEN4.memory_rate(64) == ZEN4.memory_all
    assert ZEN4.cache_rate(64) == 8 * ZEN4.l3_all


def test_cores_wait_for_lines_that_others_have():
    lines = replace(ZEN4, fork=0.0, fork_core=1.0)
    # The cores of a group wait for one another, and groups for each other, to begin and to end.
    waiting = {1: 0, 2: 2, 8: 8, 9: 10, 16: 10, 64: 22}
    assert {cores: lines.fork_seconds(cores) for cores in waiting} == waiting


@pytest.mark.parametrize("name", MACHINES)
def test_more_cores_read_no_slower(name):
    machine = MACHINES[name]
    for rate in (machine.memory_rate, machine.cache_rate):
        rates = [rate(cores) for cores in range(1, machine.cores + 1)]
        assert rates == sorted(rates)


def test_a_file_describes_another(tmp_path):
    path = tmp_path / "mine.json"
    mine = replace(ZEN4, cores=12, memory_all=80e9)
    path.write_text(json.dumps(asdict(mine)))
    assert find_machine(str(path)) == mine


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coers": 3}, "a machine has no 'coers'; did you mean 'cores'?"),
        ({"cores": 0}, "'cores' must be above 0, not 0"),
        ({"cores": 2.5}, "'cores' must be a whole number, not 2.5"),
        ({"flops": "fast"}, "'flops' must be a number, not \"fast\""),
        ({"cpu": 4}, "'cpu' must be a name, not 4"),
        ({"l3": True}, "'l3' must be a whole number, not true"),
        ({"flops": None, "l2": None}, "'flops' must be a number, not null"),
    ],
)
def test_messages_name_the_mistake_in_a_machine_file(tmp_path, change, words):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(asdict(ZEN4) | change))
    with pytest.raises(UsageError) as caught:
        find_machine(str(path))
    assert str(caught.value) == f"{path}: {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "must be a JSON object"),
        ("{", "is no JSON"),
        ('{"cpu": "znver4"}', "lacks cores, "),
        ('{"cores": 1' + "0" * 400 + "}", "beyond all numbers here"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        find_machine(str(path))


def test_endless_machine_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name, kind in (("pipe.json", "a pipe"), ("zero.json", "a device")):
        with pytest.raises(UsageError, match=f"cannot read the machine .*: it is {kind}, not a"):
            find_machine(str(tmp_path / name))


def test_an_unknown_machine_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no machine 'znver'; known: znver4, .*did you mean"):
        find_machine("znver")
    with pytest.raises(UsageError, match=r"cannot read the machine .*: No such file"):
        find_machine(str(tmp_path / "none.json"))
